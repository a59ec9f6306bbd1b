"""Tables as notebooks show them."""

import html
from collections.abc import Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML; the cells are text, whatever they contain."""
    head = "".join(f"<th style='text-align:left'>{html.escape(each)}</th>" for each in headings)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
