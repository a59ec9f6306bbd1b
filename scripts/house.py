"""Prints figures of the code's structure, one column a checkout: lines, and what makes code hard to read.

    python scripts/house.py [CHECKOUT ...]

For the checkout of an earlier commit: ``git worktree add FOLDER COMMIT``.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from import_graph import PACKAGE, arrows_of, modules

# Reading one of these of a tensor, a layer or an edge_index in a condition is a test of an operand.
_OPERANDS = {
    *("layout", "is_cpu", "is_cuda", "is_meta", "is_sparse", "dtype", "device", "requires_grad", "grad_fn"),
    *("dim", "ndim", "shape", "size", "numel", "is_floating_point", "is_complex", "is_contiguous", "stride"),
    *("aggr", "flow", "node_dim", "explain", "aggr_module", "training"),
}
_TESTING_CALLS = {"wraps", "is_wrapped", "isinstance", "type", "hasattr", "callable"}
_MANY_PARAMETERS = 8
_FEW_LINES = 100


def lines_by_package(root: Path) -> Counter[str]:
    """Return the lines of Python of each package, of the whole, and of the folders beside it."""
    counts: Counter[str] = Counter()
    for folder in (f"src/{PACKAGE}", "tests", "benchmarks", "scripts", "examples"):
        for path in (root / folder).rglob("*.py"):
            inside = path.relative_to(root / folder).parts
            lines = len(path.read_text().splitlines())
            counts[folder] += lines
            if folder.startswith("src") and len(inside) > 1:
                counts[f"  {inside[0]}"] += lines
                if inside[:2] == ("integrations", "pyg"):
                    counts["    integrations/pyg"] += lines
    return counts


def conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the atomic tests: the leaves of conditions, and of what ``and``, ``or`` and ``not`` connect."""

    def leaves(node: ast.expr) -> Iterator[ast.expr]:
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from leaves(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield from leaves(node.operand)
        else:
            yield node

    nested = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield from leaves(node.test)
            nested |= {id(each) for each in ast.walk(node.test)}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need":
            # Raises unless its first argument holds.
            yield from leaves(node.args[0])
            nested |= {id(each) for each in ast.walk(node.args[0])}
        elif isinstance(node, ast.BoolOp) and id(node) not in nested:
            yield from leaves(node)
            nested |= {id(each) for each in ast.walk(node)}
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield from leaves(test)


def tests_operand(test: ast.expr) -> bool:
    """Return whether a test reads a property of an operand, or its type."""
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute) and node.attr in _OPERANDS:
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _TESTING_CALLS:
            return True
    return False


def figures(root: Path) -> dict[str, int]:
    """Return all figures of a checkout."""
    source = root / "src"
    found = modules(source)
    trees = {name: ast.parse(path.read_text()) for name, path in found.items()}
    found_in_integrations = {name for name in trees if name.startswith(f"{PACKAGE}.integrations")}
    arrows = arrows_of(source)
    importers = Counter(other for others in arrows.values() for other in others)
    tests = {name: sum(map(tests_operand, conditions(trees[name]))) for name in sorted(found_in_integrations)}
    functions = [
        node
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    classes = [
        node
        for name in found_in_integrations
        for node in ast.walk(trees[name])
        if isinstance(node, ast.ClassDef)
    ]
    thresholds = next(
        node
        for node in ast.walk(trees[f"{PACKAGE}.thresholds"])
        if isinstance(node, ast.ClassDef) and node.name == "Thresholds"
    )
    return {
        **lines_by_package(root),
        "files of the package": len(found),
        f"files under {_FEW_LINES} lines": sum(
            len(path.read_text().splitlines()) < _FEW_LINES for path in found.values()
        ),
        "files that one other imports": sum(importers[name] == 1 for name in found),
        "files in circles of imports": sum(name in reached(name, arrows) for name in arrows),
        "tests of operands in integrations": sum(tests.values()),
        "  in so many files": sum(count > 0 for count in tests.values()),
        "makers of wrappers": sum(calls(node, "stand_in") for node in functions),
        "classes of notes in integrations": sum(is_note(node) for node in classes),
        "thresholds": sum(isinstance(node, ast.AnnAssign) for node in thresholds.body),
        f"functions with {_MANY_PARAMETERS} or more parameters": sum(
            parameters(node) >= _MANY_PARAMETERS for node in functions
        ),
    }


def reached(begin: str, arrows: dict[str, set[str]]) -> set[str]:
    """Return the files that one of them reaches by imports, those inside functions too."""
    seen: set[str] = set()
    waiting = [begin]
    while waiting:
        for other in arrows[waiting.pop()] - seen:
            seen.add(other)
            waiting.append(other)
    return seen


def calls(function: ast.AST, name: str) -> bool:
    """Return whether a function calls another by its name, not counting functions inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def is_note(node: ast.ClassDef) -> bool:
    """Return whether a class is what the cache keeps: it says how many bytes it holds."""
    return any(
        (isinstance(part, ast.FunctionDef) and part.name == "nbytes")
        or (isinstance(part, ast.AnnAssign) and getattr(part.target, "id", "") == "nbytes")
        for part in node.body
    )


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of a function's parameters, ``self`` not counted."""
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len(named) - (bool(named) and named[0].arg in ("self", "cls"))


def main(checkouts: list[Path]) -> None:
    """Prints the table."""
    columns = [figures(root) for root in checkouts]
    names = list(dict.fromkeys(name for column in columns for name in column))
    width = max(map(len, names))
    print(" " * width, *(f"{root.name[:14]:>14}" for root in checkouts))
    for name in names:
        print(f"{name:<{width}}", *(f"{column.get(name, 0):>14,}" for column in columns))


if __name__ == "__main__":
    main([Path(each).resolve() for each in sys.argv[1:]] or [Path(__file__).resolve().parents[1]])
