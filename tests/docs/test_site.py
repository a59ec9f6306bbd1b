"""The documents as MkDocs reads them, and the scripts that adapt them; `make docs` itself builds the site."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import onehop
from tests.scripts import load

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "docs" / "reference" / "api"
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) ")
OF_A_LIST = re.compile(r"$|  |" + ITEM.pattern)


def hooks_of_mkdocs() -> ModuleType:
    pytest.importorskip("mkdocs")
    return load("site/hooks")


def described() -> list[str]:
    return [name for page in API.glob("*.md") for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)]


def test_pages_of_the_api_have_every_public_name() -> None:
    names = set(onehop._HOMES) | {"files.read"}
    assert names - {name.removeprefix("onehop.") for name in described()} == set()


def test_no_name_has_two_places() -> None:
    assert len(described()) == len(set(described()))


def test_lists_begin_after_an_empty_line() -> None:
    # GitHub takes them for lists anyway, MkDocs for more of the paragraph.
    found = []
    for path in (ROOT / "docs").rglob("*.md"):
        before, in_code = "", False
        for line in path.read_text().splitlines():
            in_code ^= line.startswith("```")
            if not in_code and ITEM.match(line) and not OF_A_LIST.match(before):
                found.append((path.name, line))
            before = line
    assert found == []


def test_a_block_that_is_not_run_is_still_a_block_of_python() -> None:
    text = "```python no-run: needs a GPU\nx = 1\n```\n"
    assert hooks_of_mkdocs().on_page_markdown(text) == "```python\nx = 1\n```\n"


def test_links_to_examples_lead_into_the_site() -> None:
    text = "[one](../examples/01_aggregate.py), [two](../../examples/01_aggregate.py), [three](../other.md)"
    expected = "[one](examples/01_aggregate.py), [two](../examples/01_aggregate.py), [three](../other.md)"
    assert hooks_of_mkdocs().on_page_markdown(text) == expected


def test_links_to_the_documents_of_the_top_lead_to_their_pages() -> None:
    text = "[one](../SECURITY.md), [two](../../CONTRIBUTING.md#code-layout), [three](../other.md)"
    expected = "[one](security.md), [two](../contributing.md#code-layout), [three](../other.md)"
    assert hooks_of_mkdocs().on_page_markdown(text) == expected


def table_of(titles: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def test_cells_of_a_stacked_table_have_the_titles_of_their_columns() -> None:
    made = hooks_of_mkdocs().for_a_phone(
        table_of(["a", 'the <code>b"</code>', "c"], [["1", "2", "3"], ["4", "", "6"]])
    )
    assert made.startswith("<table data-stacked>")
    assert '<td data-title="the b&quot;"><div>2</div></td>' in made
    assert made.count('data-title="c"') == 2
    assert '<td data-title="the b&quot;"><div></div></td>' in made


@pytest.mark.parametrize(
    ("columns", "rows", "cell", "way"),
    [
        (2, 3, "word " * 6, ""),
        (2, 3, "word " * 7, " data-stacked"),
        (3, 3, "1", " data-stacked"),
        (5, 20, "1", " data-stacked"),
        (5, 21, "1", " data-scrolled"),
        (5, 21, "word " * 13, " data-stacked"),
    ],
)
def test_tables_of_many_figures_scroll_and_others_are_stacked(
    columns: int, rows: int, cell: str, way: str
) -> None:
    made = hooks_of_mkdocs().for_a_phone(table_of(["title"] * columns, [[cell] * columns] * rows))
    assert made.startswith(f"<table{way}>")
    assert ("data-title" in made) == (way == " data-stacked")


def test_roles_become_links_and_code() -> None:
    pytest.importorskip("griffe")
    text = load("site/roles").in_markdown("see :func:`onehop.tune` and ``x``, or `y`")
    link = '<autoref identifier="onehop.tune" optional><code>onehop.tune</code></autoref>'
    assert text == f"see {link} and `x`, or `y`"


def test_the_readme_is_the_first_page() -> None:
    hooks = hooks_of_mkdocs()
    page = hooks.on_page_markdown(hooks.from_top((ROOT / "README.md").read_text()))
    assert "](docs" not in page
    assert "(images/published-light.svg#only-light)" in page
    assert "(images/published-dark.svg#only-dark)" in page
    assert "](contributing.md)" in page
    assert "<picture" not in page


@pytest.mark.parametrize(("columns", "hidden"), [(6, ["toc"]), (5, None)])
def test_wide_tables_get_the_place_of_the_contents(columns: int, hidden: list[str] | None) -> None:
    page = SimpleNamespace(meta={})
    hooks_of_mkdocs().on_page_markdown(f"|{' a |' * columns}\n|{' ---: |' * columns}\n", page=page)
    assert page.meta.get("hide") == hidden


def test_what_is_wrong_with_a_page_is_told() -> None:
    found = {"wider": 12, "broken": ["GCNConv", "GCNConv"], "cut": ["pre: x"], "scrolling": ["a b"]}
    faults = load("site/check_pages").faults
    told = ["12 pixels wider than its window", "broken: GCNConv", "cut off: pre: x"]
    assert faults(found, 390) == told
    assert faults(found, 1280) == [*told, "a table does not fit: a b"]
    assert faults({"wider": 0, "broken": [], "cut": [], "scrolling": []}, 1280) == []


def test_long_names_end_a_line_behind_a_dot() -> None:
    made = hooks_of_mkdocs().on_page_content("<code>onehop.machines.pim</code> a.b <code>2.5</code>")
    assert made == "<code>onehop.<wbr>machines.<wbr>pim</code> a.b <code>2.5</code>"


def menus() -> dict[str, list[tuple[str, str]]]:
    """The names and pages of each tab of the navigation."""
    yaml = pytest.importorskip("yaml")
    text = re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text())
    return {
        name: list(entries_of(entries))
        for tab in yaml.safe_load(text)["nav"]
        for name, entries in tab.items()
    }


def entries_of(entries: list[Any]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if isinstance(entry, str):
            yield title_of(entry), entry
            continue
        for name, inner in entry.items():
            yield from [(name, inner)] if isinstance(inner, str) else entries_of(inner)


def title_of(page: str) -> str:
    top = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
    path = ROOT / top[page] if page in top else ROOT / "docs" / page
    return path.read_text().split("\n", 1)[0].removeprefix("# ")


def test_no_menu_has_more_than_fifteen_entries() -> None:
    assert {name: len(entries) for name, entries in menus().items() if len(entries) > 15} == {}


def test_no_two_entries_of_the_menus_share_a_name_or_a_page() -> None:
    entries = [entry for entries in menus().values() for entry in entries]
    names, pages = [name.lower() for name, _ in entries], [page for _, page in entries]
    assert [name for name in names if names.count(name) > 1] == []
    assert len(set(pages)) == len(pages)


def test_the_menus_have_every_page() -> None:
    pages = {page for entries in menus().values() for _, page in entries}
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert written - pages == set()


def test_troubleshooting_answers_twenty_questions_from_public_threads() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert len(re.findall(r"^## ", page, re.MULTILINE)) == 21  # the last says how to report a fault
    assert len(set(re.findall(r"https://github\.com/\S+/(?:issues|pull)/\d+", page))) >= 20


def test_pictures_of_both_themes_exist() -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        for dark, light in re.findall(r'srcset="([^"]+)">\s*<img src="([^"]+)"', path.read_text()):
            assert (path.parent / dark).exists()
            assert (path.parent / light).exists()
