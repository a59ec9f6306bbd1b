"""Every Python example of the documents runs, file by file, as a reader would type it.

A block of ``text`` that follows one is what it prints.
"""

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import onehop
from tests.registries import as_before

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```python(?P<tag>[^\n]*)\n(?P<code>.*?)^```", flags=re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"\n\n```text\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def runs(match: re.Match[str]) -> bool:
    return not match["tag"].strip()


WITH_EXAMPLES = [path for path in DOCUMENTS if any(map(runs, FENCE.finditer(path.read_text())))]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    # PyG looks for the module of a class of layers.
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for match in FENCE.finditer(text):
        if not runs(match):
            continue
        line = text[: match.start("code")].count("\n")
        # Blank lines before the code make tracebacks name the document's own lines.
        code = compile("\n" * line + match["code"], str(path), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, vars(module))
        if shown := PRINTED.match(text, match.end()):
            assert printed.getvalue() == shown[1]


@pytest.fixture(autouse=True)
def _undone_afterwards() -> Iterator[None]:
    with as_before():
        yield
    onehop.unpatch()


def test_a_block_that_does_not_run_says_why() -> None:
    blocks = [(name(path), block) for path in DOCUMENTS for block in FENCE.finditer(path.read_text())]
    tags = [(path, block["tag"].strip()) for path, block in blocks]
    assert [(path, tag) for path, tag in tags if tag and not re.fullmatch(r"no-run: .+", tag)] == []


def test_links_between_documents_lead_somewhere() -> None:
    pattern = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
    links = [(path, link) for path in DOCUMENTS for link in pattern.findall(path.read_text())]
    assert [(name(path), link) for path, link in links if not (path.parent / link).exists()] == []
