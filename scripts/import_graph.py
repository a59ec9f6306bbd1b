"""Prints the graph of imports between the package's files: files, arrows, those upwards, circles, back doors.

    python scripts/import_graph.py [CHECKOUT]

Imports inside functions, under TYPE_CHECKING and by ``importlib.import_module`` count like any other.
So one inside a function may delay an import downwards, and no import upwards.
Layers are those of the checkout.

A back door reaches a file of the package, and is no import: a use of ``sys.modules``, or of a way that
``loading.py`` does not declare for that file.
Ends with 1 where an arrow goes upwards, files form a circle, or there is a back door.
"""

import ast
import runpy
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

PACKAGE = "onehop"
# They use ``sys.modules``, and reach no file of the package by it.
_OF_OTHERS = {
    "onehop.loading": "it tells whether a package of others has been imported",
    "onehop.integrations.rows": "it looks in all modules for the functions that it replaces",
    "onehop.cli.script": "it puts the user's program in the place of __main__",
    "onehop.bench.peers.dgl": "it puts an empty module in the place of one of DGL's",
}
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


def ways(source: Path) -> dict[str, Any]:
    """The ways that ``loading.py`` declares, by their names."""
    names = runpy.run_path(str(source / PACKAGE / "loading.py"))
    return {name: value for name, value in names.items() if type(value).__name__ == "Way"}


def back_doors(source: Path) -> list[str]:
    """What each back door is, and what ``loading.py`` declares without need."""
    declared, files = ways(source), modules(source)
    unused = {(name, user) for name, way in declared.items() for user in (way.provider, *way.users)}
    found = []
    for module, path in sorted(files.items()):
        tree = ast.parse(path.read_text())
        if module not in _OF_OTHERS and _asks_modules(tree):
            found.append(f"{module} uses sys.modules")
        if "imported" in _taken(tree):
            texts = {getattr(node, "value", None) for node in ast.walk(tree)}
            found += [f"{module} asks for {name}" for name in sorted(texts & set(files) - {PACKAGE})]
        if module == f"{PACKAGE}.loading":
            continue
        for name, is_provided in _ways_used(tree):
            way = declared.get(name)
            unused.discard((name, module))
            if way is None or module not in ((way.provider,) if is_provided else way.users):
                found.append(f"{module} {'provides' if is_provided else 'uses'} {name}")
    return found + [f"loading.py names {module} at {name}" for name, module in sorted(unused)]


def _asks_modules(tree: ast.Module) -> bool:
    """Return whether a file uses ``sys.modules`` for another module than itself."""
    itself = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and getattr(node.slice, "id", "") == "__name__"
    }
    return any(
        (isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules" and id(node) not in itself)
        or (isinstance(node, ast.ImportFrom) and ast.unparse(node) == "from sys import modules")
        for node in ast.walk(tree)
    )


def _ways_used(tree: ast.Module) -> set[tuple[str, bool]]:
    """The ways that a file imports, each with whether the file is its provider."""
    provided = {
        ast.unparse(node.value).removeprefix("loading.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "provide"
    }
    return {(name, name in provided) for name in _taken(tree) if name.isupper()}


def _taken(tree: ast.Module) -> set[str]:
    """The names of ``loading.py`` that a file imports, or uses as attributes of the module."""
    attributes = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "loading"
    }
    return attributes | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == f"{PACKAGE}.loading"
        for alias in node.names
    }


def main(checkout: Path) -> int:
    """Prints the counts, and each fault."""
    arrows = arrows_of(checkout / "src")
    wrong, rings = upwards(arrows, storeys(checkout)), circles(arrows)
    doors = back_doors(checkout / "src")
    print(
        f"{len(arrows)} files, {sum(map(len, arrows.values()))} arrows, {len(wrong)} upwards, "
        f"{len(rings)} circles of files, {len(doors)} back doors"
    )
    for name, other in wrong:
        print(f"  upwards: {name} -> {other}")
    for ring in rings:
        print(f"  circle: {' -> '.join(ring)}")
    for door in doors:
        print(f"  back door: {door}")
    return bool(wrong or rings or doors)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]))
