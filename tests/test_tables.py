"""One table, as plain text, Markdown, HTML and on a terminal."""

from dataclasses import dataclass

import pytest
from rich.console import Console

from onehop.tables import PAIR, Column, Table


@dataclass
class Row:
    word: str
    number: float | None


COLUMNS = (
    Column("word", "word", left=True),
    Column("number", "number", "{:.1f} ms", absent="-"),
    Column("twice", lambda row: None if row.number is None else 2 * row.number, lambda value: f"{value:g}"),
)
ROWS = [Row("one", 1.0), Row("[bold]|<b>", 22.25), Row("none", None)]
TABLE = Table(COLUMNS, ROWS, "Numbers")


def printed(table: Table, width: int = 60) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_cells() -> None:
    assert TABLE.cells() == [["one", "1.0 ms", "2"], ["[bold]|<b>", "22.2 ms", "44.5"], ["none", "-", ""]]


@pytest.mark.parametrize(
    ("field", "row"),
    [("a", {"a": 3}), (0, (3,)), ("a", Row), (lambda row: row + 1, 2)],
    ids=["key", "index", "attribute", "function"],
)
def test_a_field_is_a_key_an_index_an_attribute_or_a_function(field, row):
    if row is Row:
        row = type("Object", (), {"a": 3})()
    assert Column("", field, "<{}>").cell(row) == "<3>"


def test_a_field_that_a_row_lacks_is_an_error() -> None:
    with pytest.raises(KeyError):
        Column("a", "a").cell({"b": 1})


def test_text_has_words_to_the_left_and_numbers_to_the_right() -> None:
    assert str(TABLE).splitlines() == [
        "word         number  twice",
        "--------------------------",
        "one          1.0 ms      2",
        "[bold]|<b>  22.2 ms   44.5",
        "none              -",
    ]


def test_text_of_no_rows_has_headings() -> None:
    assert str(Table(COLUMNS, [])) == "word  number  twice\n-------------------"


def test_markdown_aligns_and_escapes() -> None:
    assert TABLE.markdown().splitlines() == [
        "| word | number | twice |",
        "| --- | ---: | ---: |",
        "| one | 1.0 ms | 2 |",
        r"| [bold]\|<b> | 22.2 ms | 44.5 |",
        "| none | - |  |",
    ]


def test_html_aligns_and_escapes() -> None:
    shown = Table(COLUMNS[:2], ROWS[1:2])._repr_html_()
    assert shown == (
        "<table><thead><tr><th style='text-align:left'>word</th><th style='text-align:right'>number</th></tr>"
        "</thead><tbody><tr><td style='text-align:left'>[bold]|&lt;b&gt;</td>"
        "<td style='text-align:right'>22.2 ms</td></tr></tbody></table>"
    )


def test_a_terminal_shows_the_title_and_text_that_is_no_markup() -> None:
    assert printed(TABLE) == [
        "Numbers",
        "word          number   twice",
        "----------------------------",
        "one           1.0 ms       2",
        "[bold]|<b>   22.2 ms    44.5",
        "none               -",
    ]


def test_styles_are_of_a_column_or_of_a_row() -> None:
    columns = (
        Column("a", 0, style="bold"),
        Column("b", 1, style=lambda row: "red" if row[1] == "x" else ""),
    )
    console = Console(width=40, force_terminal=True, color_system="standard", no_color=False)
    with console.capture() as captured:
        console.print(Table(columns, [("p", "x"), ("q", "y")]))
    text = captured.get()
    assert "\x1b[1mp\x1b[0m" in text
    assert "\x1b[31mx\x1b[0m" in text
    assert "\x1b[31my" not in text


def test_a_blank_line_separates_sections() -> None:
    rows = [("a", 1), ("a", 2), ("b", 3)]
    lines = printed(Table((Column("x", 0), Column("y", 1)), rows, section=lambda row: row[0]))
    assert [line.split() for line in lines[2:]] == [["a", "1"], ["a", "2"], [], ["b", "3"]]


def test_pairs_have_no_headings_and_are_never_cut() -> None:
    assert printed(Table(PAIR, [("name", "x" * 30)]), width=24) == ["name   " + "x" * 17, " " * 7 + "x" * 13]
