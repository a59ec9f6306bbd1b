"""Compares docs/reference/reasons.md with the sentences in the code that ``onehop.explain`` can print.

    python scripts/reasons.py

Lists the sentences without an entry and the entries without a sentence, and fails if there are any. An
entry is a line ``- <a id="ANCHOR"></a>SENTENCE`` of the page, where "…" means what depends on the call.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import chain, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "reasons.md"
SOURCE = ROOT / "src" / "onehop"
PLACES = ("integrations", "compiler", "ops/contexts.py", "distributed/checks.py")
# Calls that are given a sentence, and which argument it is; functions that return one.
GIVEN = {
    "Leave": 0,
    "Refused": 0,
    "Mixes": 0,
    "NotCompiled": 0,
    "Opaque": 0,
    "_refused": 0,
    "leave_if": 0,
    "need": 1,
    "note": 0,
    "refuse": 1,
}
RETURNED = re.compile(r"reason|refus|silence|asks_for")
ENTRY = re.compile(r'^- <a id="(?P<anchor>[\w-]+)"></a>(?P<sentence>.+)$', re.MULTILINE)
GAP = "…"


def texts(node: ast.expr, names: Mapping[str, ast.expr]) -> list[str]:
    """The texts that an expression can be; what is not known of them is a gap.

    Args:
        node: The expression.
        names: The constants that it may name.
    """
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Name) and node.id in names:
        return texts(names[node.id], {name: value for name, value in names.items() if name != node.id})
    if isinstance(node, ast.IfExp):
        return texts(node.body, names) + texts(node.orelse, names)
    if isinstance(node, ast.BoolOp):
        return list(chain.from_iterable(texts(value, names) for value in node.values))
    if isinstance(node, ast.JoinedStr):
        parts = [texts(part, names) or [GAP] for part in node.values]
        return ["".join(each) for each in product(*parts)]
    if isinstance(node, ast.FormattedValue):
        return texts(node.value, names)
    return []


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """The texts that a module gives names to."""
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def said(tree: ast.Module) -> Iterator[ast.expr]:
    """The expressions of a module that are sentences."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if len(node.args) > GIVEN.get(name, len(node.args)):
                yield node.args[GIVEN[name]]
        elif isinstance(node, ast.FunctionDef) and RETURNED.search(node.name):
            yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)


def sentences() -> set[str]:
    """Every sentence in the code; "…" is what depends on the call."""
    files = [
        file
        for place in PLACES
        for file in ([SOURCE / place] if place.endswith(".py") else (SOURCE / place).rglob("*.py"))
    ]
    trees = [ast.parse(file.read_text()) for file in files]
    public = {name: value for tree in trees for name, value in constants(tree).items() if name[0] != "_"}
    found = {text for tree in trees for node in said(tree) for text in texts(node, public | constants(tree))}
    return {text for text in found if re.search(r"[a-z] [a-z]", text)}


def entries() -> dict[str, str]:
    """The sentences of the page, and their anchors."""
    return {match["sentence"]: match["anchor"] for match in ENTRY.finditer(PAGE.read_text())}


def main() -> None:
    """Compares both; SystemExit if they differ."""
    code, page = sentences(), entries()
    lines = [f"no entry: {text}" for text in sorted(code - page.keys())]
    lines += [f"no sentence: {text}" for text in sorted(page.keys() - code)]
    if lines:
        raise SystemExit("\n".join(lines))


if __name__ == "__main__":
    main()
