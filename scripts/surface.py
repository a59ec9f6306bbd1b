"""Prints the public surface, a line each: names with their parameters, methods, commands with their options.

    python scripts/surface.py > surface.txt

Two checkouts are compared by ``diff`` of what each prints.
"""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import Any

import onehop


def names_of(module: ModuleType) -> Iterator[str]:
    """Yield the names that a module exports: its ``__all__``, or what the package itself shows to users."""
    listed = getattr(module, "__all__", None)
    for name in listed if listed is not None else dir(module):
        if name.startswith("_"):
            continue
        value = getattr(module, name)
        own = str(getattr(value, "__module__", "")).startswith("onehop")
        if listed is not None or (own and not inspect.ismodule(value)):
            yield name


def described(path: str, value: Any) -> Iterator[str]:
    """Yield the lines of a function, or of a class and its public methods."""
    if inspect.isclass(value):
        yield f"class {path}"
        for name, member in sorted(vars(value).items()):
            if name.startswith("_") and name != "__init__":
                continue
            if isinstance(member, property | cached_property):
                yield f"  {path}.{name}"
            elif callable(member) or isinstance(member, classmethod | staticmethod):
                yield f"  {path}.{name}({parameters_of(getattr(value, name))})"
        yield from (f"  {path}.{name}" for name in sorted(getattr(value, "__dataclass_fields__", ())))
    elif inspect.isroutine(value):
        yield f"{path}({parameters_of(value)})"
    else:
        yield path


def parameters_of(function: Any) -> str:
    """Return the names of parameters, with ``=`` where there is a default."""
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(name.startswith("*") for name in found):
            found.append("*")
        default = "=" if parameter.default is not parameter.empty else ""
        found.append(str(parameter.replace(annotation=parameter.empty, default=parameter.empty)) + default)
    return ", ".join(found)


def commands(command: Any, path: str) -> Iterator[str]:
    """Yield the lines of a command and of those below it."""
    yield path
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    yield from (f"  {path} {name}" for name in sorted(options))
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), f"{path} {name}")


def surface() -> Iterator[str]:
    """Yield all lines."""
    places = [found.name for found in pkgutil.iter_modules(onehop.__path__, "onehop.")]
    below = [importlib.import_module(name) for name in places if not name.startswith("onehop._")]
    for module in [onehop, *below]:
        if module is onehop or hasattr(module, "__all__"):
            for name in sorted(names_of(module)):
                yield from described(f"{module.__name__}.{name}", getattr(module, name))
    import typer.main

    from onehop.cli import app

    yield from commands(typer.main.get_command(app.app), "onehop")


def main() -> int:
    """Prints the lines, and returns the exit status."""
    print("\n".join(surface()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
