"""Tables for the terminal and for files: a line under the headings, and no other rules."""

from rich.box import Box
from rich.table import Table

# Above, headings, the line under them, between rows, rows, between sections, footer, below: those that are
# blank are not drawn. Dashes, which every terminal has, as in the tables of onehop.explain and of machines.
_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def table(title: str = "", headings: bool = True) -> Table:
    """Return an empty table.

    Args:
        title: A line above it; empty for none.
        headings: Whether its columns have headings.
    """
    return Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        show_header=headings,
        show_edge=False,
        pad_edge=False,
        box=_RULE,
    )
