"""Registries of mappings, schemes and similar parts by name; users can add their own classes."""

import importlib.util
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from onehop.errors import ArgumentError

T = TypeVar("T")
E = TypeVar("E")


class Registry(dict[str, T]):
    """Entries by name.

    Args:
        what: What error messages call an entry, for example "mapping".
        kind: The class whose instances are entries.
        names: The names that plans accept; new ones are appended.
    """

    def __init__(self, what: str, kind: type[T], names: list[str]) -> None:
        super().__init__()
        self.what, self.kind, self.names = what, kind, names

    def register(self, entry: E) -> E:
        """Add an entry under its ``name``; used as a decorator, add an instance of the class.

        A class that is registered again (a notebook cell that runs again) replaces its earlier version.

        Args:
            entry: An instance of the registry's kind, or a subclass of it that needs no arguments.

        Returns:
            The argument, unchanged.

        Raises:
            ArgumentError: The entry is not of the registry's kind, it has no name, or another class has its
                name.
        """
        found: Any = entry() if isinstance(entry, type) else entry
        if not isinstance(found, self.kind):
            raise ArgumentError(
                f"{self.what}: expected a subclass of {self.kind.__module__}.{self.kind.__name__}, got "
                f"{_place(found)}."
            )
        name = getattr(found, "name", None)
        if not isinstance(name, str) or not name:
            raise ArgumentError(f'{self.what}: {_place(found)} has no name; give it one, as name = "mine".')
        if type(found).__hash__ is None:
            raise ArgumentError(f"{self.what}: {_place(found)} cannot be hashed; a dataclass must be frozen.")
        if name in self:
            if _place(self[name]) != _place(found):
                raise ArgumentError(f"{self.what}: the name {name!r} is taken; choose another.")
        elif name not in self.names:
            self.names.append(name)
        self[name] = found
        return entry

    def named(self, name: str) -> T:
        """Return the entry of this name, or register and return the class that ``FILE.py:CLASS`` names.

        Raises:
            ArgumentError: There is no such entry, or the file has no such class.
        """
        if name in self:
            return self[name]
        file, colon, label = str(name).rpartition(":")
        if not colon or not file.endswith(".py"):
            raise ArgumentError(
                f"{self.what}: expected one of {', '.join(self)}, or FILE.py:CLASS, got {name!r}."
            )
        path = Path(file)
        if not path.is_file():
            raise ArgumentError(f"{self.what}: there is no file {file!r}, of which {name!r} is a class.")
        module = _executed(path.resolve(), path.stat().st_mtime_ns)
        owner = getattr(module, label, None)
        if not isinstance(owner, type):
            classes = [key for key, each in vars(module).items() if isinstance(each, type)]
            raise ArgumentError(
                f"{self.what}: {file} has no class {label!r}; it has {', '.join(classes) or 'none'}."
            )
        if not any(type(each) is owner for each in self.values()):
            self.register(owner)
        return next(each for each in self.values() if type(each) is owner)


def _place(entry: object) -> str:
    owner = type(entry)
    return f"{owner.__module__}.{owner.__qualname__}"


@lru_cache(maxsize=64)
def _executed(path: Path, changed_ns: int) -> ModuleType:
    """Run the file as a module and return it; ``changed_ns`` is the time of the file's last change."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None, "a path that ends in .py has one"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
