"""The documents as MkDocs reads them, and the scripts that adapt them; `make docs` itself builds the site."""

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

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
