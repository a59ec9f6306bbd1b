"""Tables: columns that select and format fields of rows, which are JSON-like objects.

A table prints on a terminal (through rich), as plain text, as Markdown and, in notebooks, as HTML.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: The heading, of one or several lines.
        field: The field of a row that is shown: a key, an index, the name of an attribute, or a function of
            the row.
        shown: The format of a value, such as ``"{:.2f} ms"``, or a function of the value.
        absent: The text for None.
        left: Whether cells are aligned to the left, for words, instead of to the right, for numbers.
        wraps: Whether long cells are wrapped on a narrow terminal; otherwise they are truncated.
        style: The style on a terminal, such as "bold", or a function of the row that returns one.
    """

    title: str
    field: str | int | Callable[[Any], Any]
    shown: str | Callable[[Any], str] = "{}"
    absent: str = ""
    left: bool = False
    wraps: bool = True
    style: str | Callable[[Any], str] = ""

    def cell(self, row: Any) -> str:
        """Return the text of a row's cell."""
        if callable(self.field):
            value = self.field(row)
        elif isinstance(self.field, str) and not isinstance(row, Mapping):
            value = getattr(row, self.field)
        else:
            value = row[self.field]
        if value is None:
            return self.absent
        return self.shown(value) if callable(self.shown) else self.shown.format(value)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of rows with headings; without headings if no column has a title.

    Attributes:
        columns: The columns, from left to right.
        rows: The rows; every column must be able to read every row.
        title: A line above the table on a terminal; empty for none.
        section: A function of a row; on a terminal, a blank line separates rows if its value changes. None
            for no such lines.
    """

    columns: Sequence[Column]
    rows: Sequence[Any]
    title: str = ""
    section: Callable[[Any], object] | None = None

    def cells(self) -> list[list[str]]:
        """Return the text of every cell, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def __str__(self) -> str:
        """Return the table as plain text, with a line under the headings."""
        grid = [[column.title for column in self.columns], *self.cells()]
        widths = [max(map(len, cells)) for cells in zip(*grid, strict=True)]
        lines = []
        for row in grid:
            padded = [
                cell.ljust(width) if column.left else cell.rjust(width)
                for column, cell, width in zip(self.columns, row, widths, strict=True)
            ]
            lines.append("  ".join(padded).rstrip())
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    def markdown(self) -> str:
        """Return the table in Markdown."""
        titles = [column.title for column in self.columns]
        rule = ["---" if column.left else "---:" for column in self.columns]
        escaped = ([cell.replace("|", r"\|") for cell in row] for row in (titles, rule, *self.cells()))
        return "\n".join("| " + " | ".join(row) + " |" for row in escaped)

    def _repr_html_(self) -> str:
        """Return the table in HTML; the contents of cells are escaped."""

        def line(tag: str, cells: Sequence[str]) -> str:
            sides = ["left" if column.left else "right" for column in self.columns]
            return "".join(
                f"<{tag} style='text-align:{side}'>{html.escape(cell)}</{tag}>"
                for side, cell in zip(sides, cells, strict=True)
            )

        head = line("th", [column.title for column in self.columns])
        body = "".join(f"<tr>{line('td', row)}</tr>" for row in self.cells())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __rich__(self) -> Any:
        """Return the table as a rich object; brackets in cells are not interpreted as markup."""
        from rich.box import Box
        from rich.table import Table as RichTable
        from rich.text import Text

        # The lines are: above, headings, the line under them, between rows, rows, between sections, footer,
        # below. Blank lines are not drawn. Dashes are used, because every terminal has them.
        rule = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
        table = RichTable(
            title=Text(self.title, style="bold") if self.title else None,
            title_justify="left",
            header_style="bold",
            show_header=any(column.title for column in self.columns),
            show_edge=False,
            pad_edge=False,
            box=rule,
        )
        for column in self.columns:
            table.add_column(
                Text(column.title),
                justify="left" if column.left else "right",
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
            )
        previous = None
        for number, (row, cells) in enumerate(zip(self.rows, self.cells(), strict=True)):
            section = None if self.section is None else self.section(row)
            if number and section != previous:
                table.add_section()
            previous = section
            styles = (
                column.style(row) if callable(column.style) else column.style for column in self.columns
            )
            table.add_row(*map(Text, cells, styles))
        return table


def titled(titles: Sequence[str], left: int = 1) -> list[Column]:
    """Return columns for rows that are sequences of values, in order.

    Args:
        titles: The heading of each column.
        left: The number of first columns that contain words.
    """
    return [Column(title, number, left=number < left) for number, title in enumerate(titles)]


# Columns for pairs of a name and a text, without headings.
PAIR = (Column("", 0, left=True, wraps=False), Column("", 1, left=True))
