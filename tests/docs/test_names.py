"""Names of onehop that the documents mention exist."""

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"(?<![\w./-])onehop(?:\.[A-Za-z_]\w*)+")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def unknown(text: str) -> set[str]:
    names = set()
    for name in set(NAME.findall(text)):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            names.add(name)
    return names


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_exist(path: Path) -> None:
    assert unknown(path.read_text()) == set()


def test_a_name_that_does_not_exist_is_noticed() -> None:
    text = "`onehop.agregate(graph, x)`, `onehop.Graph.from_csr`, `onehop.machines.pim`, docs/onehop.md"
    assert unknown(text) == {"onehop.agregate"}
