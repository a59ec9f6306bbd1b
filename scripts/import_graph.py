"""Prints the graph of imports between the package's files: files, arrows, arrows upwards, circles.

    python scripts/import_graph.py [CHECKOUT]

Imports inside functions, under TYPE_CHECKING and by ``importlib.import_module`` count like any other.
Layers are those of the checkout.
Ends with 1 where an arrow goes upwards or files form a circle.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = "onehop"
Arrows = dict[str, set[str]]


def modules(source: Path) -> dict[str, Path]:
    """Every file of the package by its module's name."""
    found = {}
    for path in (source / PACKAGE).rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, module: str, known: set[str]) -> Iterator[str]:
    """The files of the package that one of them imports, by a statement or by ``import_module("name")``.

    Extension modules are no files.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                if f"{base}.{alias.name}" in known:
                    yield f"{base}.{alias.name}"
                elif base in known and not (base == PACKAGE and alias.name.startswith("_")):
                    yield base
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            yield from (each.value for each in node.args if getattr(each, "value", None) in known)


def arrows_of(source: Path) -> Arrows:
    """From every file to those that it imports."""
    found = modules(source)
    return {name: set(imported(path, name, set(found))) - {name} for name, path in found.items()}


def storeys(checkout: Path) -> dict[str, int]:
    """The number of each layer's storey, from the top."""
    linter = tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each["layers"] for each in linter["contracts"] if each["type"] == "layers")
    return {name.strip(" ()"): number for number, storey in enumerate(layers) for name in storey.split("|")}


def upwards(arrows: Arrows, storey: dict[str, int]) -> list[tuple[str, str]]:
    """Arrows from a layer to one above it; the surface is as high as what it imports."""

    def level(module: str) -> int:
        if module == PACKAGE:
            return min(map(level, arrows[PACKAGE]))
        layer = module.split(".")[1]
        if layer not in storey:
            raise SystemExit(f"{PACKAGE}.{layer} is not among the layers of pyproject.toml.")
        return storey[layer]

    return [
        (name, other)
        for name, others in sorted(arrows.items())
        for other in sorted(others)
        if level(other) < level(name)
    ]


def circles(arrows: Arrows) -> list[list[str]]:
    """Circles, until without the last arrow of each no other is left."""
    left, found = {name: set(others) for name, others in arrows.items()}, []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]  # graphlib lists it from what is imported to who imports
            found.append(circle)
            left[circle[-2]].discard(circle[-1])
        else:
            return found


def main(checkout: Path) -> int:
    """Prints the counts, and each fault."""
    arrows = arrows_of(checkout / "src")
    wrong, rings = upwards(arrows, storeys(checkout)), circles(arrows)
    print(
        f"{len(arrows)} files, {sum(map(len, arrows.values()))} arrows, {len(wrong)} upwards, "
        f"{len(rings)} circles of files"
    )
    for name, other in wrong:
        print(f"  upwards: {name} -> {other}")
    for ring in rings:
        print(f"  circle: {' -> '.join(ring)}")
    return bool(wrong or rings)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]))
