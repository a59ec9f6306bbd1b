"""Tables as notebooks show them."""

from collections.abc import Sequence

from onehop.tables import Table, titled


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML; the cells are text, whatever they contain."""
    return Table(titled(headings, len(headings)), rows)._repr_html_()
