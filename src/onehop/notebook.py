"""Tables as notebooks show them."""

from collections.abc import Sequence

from onehop.tables import Column, Table


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML; the cells are text, whatever they contain."""
    return Table([Column(title, i, left=True) for i, title in enumerate(headings)], rows)._repr_html_()
