"""Adapts the documents to the site: they are written for readers of the repository, too.

The first page is the README. MkDocs calls these functions by their names while it builds (``make docs``).
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Documents of the repository's top, and their pages.
FROM_TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
# Why a block is not run by the tests is said in its first line, which MkDocs would not take for a block's.
_NOT_RUN = re.compile(r"^```python no-run: .*$", re.MULTILINE)
# From a document in docs/ the examples lie one folder higher than from its page on the site.
_EXAMPLES = re.compile(r"\]\(((?:\.\./)*)\.\./examples/")
# So do the documents of the repository's top.
_TOP = re.compile(r"\]\(((?:\.\./)*)\.\./([A-Z]+\.md)(?=[)#])")
# GitHub takes the theme that the system prefers; the site has a switch.
_PICTURE = re.compile(
    r'<picture><source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img src="(?P<light>[^"]+)" alt="(?P<alt>[^"]+)"></picture>'
)
# Names in code and in headings of the API may be wider than a phone: they end a line at their dots.
_NAME = re.compile(r'(<code>|<span class="doc doc-object-name[^>]*>)([^<]+)(?=</)')
_DOT = re.compile(r"(?<=[A-Za-z_)}])([./,{])(?=[A-Za-z_])")
# A table of so many columns needs the place of the page's contents beside it.
_WIDE = 6
_HEAD = re.compile(r"^\|(?: *:?-+:? *\|)+$", re.MULTILINE)
# On a phone, a table of so many columns is shown as a list of its rows (site.css), if it has no more cells
# than one scrolls past, or if it has a cell of text that would take most of the screen's width. Others scroll
# in their box. A table of fewer columns is a list if its first column alone would take most of the width.
_COLUMNS, _FEW_CELLS, _LONG_CELL, _LONG_FIRST = 3, 100, 60, 30
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_TITLE = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


def on_files(files: Files, config: Any) -> Files:
    """Adds the documents of the repository's top, and the programs of examples/, which documents link to."""
    for name, page in FROM_TOP.items():
        files.append(File.generated(config, page, content=from_top((ROOT / name).read_text())))
    for path in [*sorted((ROOT / "examples").iterdir()), ROOT / "CITATION.cff"]:
        if path.suffix in {".py", ".ipynb", ".cff"}:
            place = path.name if path.parent == ROOT else f"examples/{path.name}"
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def from_top(text: str) -> str:
    """Return a document of the repository's top with the links of its page."""
    for name, page in FROM_TOP.items():
        text = text.replace(f"]({name})", f"]({page})")
    # The list of all documents is the navigation.
    text = text.replace("[All documents](docs)", "All documents are in the navigation")
    return re.sub(r'(\]\(|src="|srcset=")docs/', r"\1", text)


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    """Return a page's text as the site takes it."""
    if page is not None and any(head.count("|") > _WIDE for head in _HEAD.findall(markdown)):
        page.meta["hide"] = ["toc"]
    text = _PICTURE.sub(r"![\g<alt>](\g<light>#only-light)\n![\g<alt>](\g<dark>#only-dark)", markdown)
    text = _TOP.sub(lambda link: f"]({link[1]}{FROM_TOP[link[2]]}", text)
    return _EXAMPLES.sub(r"](\1examples/", _NOT_RUN.sub("```python", text))


def on_page_content(html: str, **_: Any) -> str:
    """Return a page's HTML: long names may end a line behind a dot, and tables fit a phone."""
    html = _TABLE.sub(lambda table: for_a_phone(table[0]), html)
    return _NAME.sub(lambda name: name[1] + _DOT.sub(r"\1<wbr>", name[2]), html)


def for_a_phone(table: str) -> str:
    """Return a table that says how a phone shows it; the cells of a list have the titles of their columns."""
    titles = [" ".join(_TAG.sub("", title).split()).replace('"', "&quot;") for title in _TITLE.findall(table)]
    cells = [_TAG.sub("", content) for _, content in _CELL.findall(table)]
    is_text = any(len(cell) > _LONG_CELL for cell in cells)
    if len(titles) < _COLUMNS and all(len(cell) <= _LONG_FIRST for cell in cells[:: max(len(titles), 1)]):
        return table
    if len(titles) >= _COLUMNS and len(cells) > _FEW_CELLS and not is_text:
        return table.replace("<table>", "<table data-scrolled>", 1)
    rows = _ROW.sub(lambda row: _titled(row[0], titles), table)
    return rows.replace("<table>", "<table data-stacked>", 1)


def _titled(row: str, titles: list[str]) -> str:
    """Return a row of a table in which each cell has its column's title."""
    columns = iter(titles)
    return _CELL.sub(
        lambda cell: f'<td{cell[1]} data-title="{next(columns, "")}"><div>{cell[2]}</div></td>', row
    )
