"""Names of onehop that the documents mention exist."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import onehop

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"(?<![\w./-])onehop(?:\.[A-Za-z_]\w*)+")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def exists(name: str) -> bool:
    """Return whether a dotted name is an attribute, or a module of its package."""
    found: object = onehop
    for part in name.split(".")[1:]:
        # An attribute comes first: importing a folder of data of the same name would hide it.
        if not hasattr(found, part):
            if not isinstance(found, ModuleType):
                return False
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except ImportError:
                return False
        found = getattr(found, part)
    return True


def unknown(text: str) -> set[str]:
    return {name for name in set(NAME.findall(text)) if not exists(name)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_exist(path: Path) -> None:
    assert unknown(path.read_text()) == set()


def test_a_name_that_does_not_exist_is_noticed() -> None:
    text = "`onehop.agregate(graph, x)`, `onehop.Graph.from_csr`, `onehop.machines.pim`, docs/onehop.md"
    assert unknown(text) == {"onehop.agregate"}
