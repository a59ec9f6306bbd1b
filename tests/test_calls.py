"""Calls are made by keyword: two tensors, or two flags, in the wrong order would be no error of types."""

import ast
from pathlib import Path

import pytest

import onehop
from onehop import calls

PACKAGE = Path(onehop.__file__).parent
NAMES = {name for name in calls.__all__ if hasattr(getattr(calls, name), "_fields")}
# A gradient's one field, or all of them as a backend returned them.
STARRED = (ast.Starred,)


def positional(source: str) -> list[tuple[int, str]]:
    """Lines and names of calls that are made with more than one argument by position."""
    tree = ast.parse(source)
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onehop.calls")
        for alias in node.names
    }
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in NAMES & imported
        ):
            plain = [each for each in node.args if not isinstance(each, STARRED)]
            if len(plain) > 1:
                found.append((node.lineno, node.func.id))
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_calls_are_made_by_keyword(path: Path) -> None:
    assert not positional(path.read_text())


def test_positions_are_found() -> None:
    assert positional("from onehop.calls import Sddmm\nSddmm(dst, src)") == [(2, "Sddmm")]
    assert not positional("from onehop.calls import Sddmm\nSddmm(dst=dst, src=src)")
