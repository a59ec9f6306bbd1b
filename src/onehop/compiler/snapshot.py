"""Snapshots of layers, on which messages run, so that the backward pass sees the state of the forward pass.

A message that runs again in the backward pass must not see later changes: of a layer's attribute (for example
by ``eval()``), of a global that it reads, of a list's entry, or of a buffer's contents. So it runs on a copy
of the layer and its submodules, which shares the parameters, and as copies of its functions, which read the
earlier values.
"""

import copy
import functools
import types
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import Module

from onehop.compiler.bytecode import Names, scan_of
from onehop.compiler.reading import OF_MODULES, Reading
from onehop.compiler.trusted import is_holder, is_module, is_plain, is_trusted, replaced_by


class Snapshot:
    """A copy of a layer's modules.

    Args:
        layer: The layer.
        frozen: Copies the values that a message reads; None copies only the modules.

    Attributes:
        layer: The copy of the layer.
    """

    def __init__(self, layer: Any, frozen: "Frozen | None" = None) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}
        self._frozen = frozen
        self.layer = self.copy(layer)

    def copy(self, module: Any) -> Any:
        """Return the copy of a module."""
        if id(module) in self._copies:
            return self._copies[id(module)][1]
        copied = object.__new__(type(module))
        self._copies[id(module)] = (module, copied)
        state = copied.__dict__
        state.update(module.__dict__)
        for name in ("_parameters", "_buffers"):
            state[name] = dict(state[name])
        state["_modules"] = {
            name: None if child is None else self.copy(child) for name, child in state["_modules"].items()
        }
        for name, value in state.items():
            if isinstance(value, dict) and name in OF_MODULES:
                state[name] = value.copy()  # dictionaries of hooks, and the stores copied above
            elif isinstance(value, types.MethodType) and value.__self__ is module:
                state[name] = types.MethodType(value.__func__, copied)
        if self._frozen is not None:
            self._frozen.fill(copied)
        return copied

    def renamed(self, others: dict[int, Any]) -> set[int]:
        """Replaces parameters of the copy by other tensors, by their ids; returns the ids that it found."""
        ids = set()
        for _, copied in self._copies.values():
            parameters = copied.__dict__["_parameters"]
            for name, parameter in parameters.items():
                if id(parameter) in others:
                    ids.add(id(parameter))
                    parameters[name] = others[id(parameter)]
        return ids


class Frozen:
    """Copies of the functions and values that a message reads.

    Args:
        reading: The analysis of the message.
        saved: Tensors that need no copy, because autograd reports writes to them.
    """

    def __init__(self, reading: Reading, saved: Iterable[Tensor]) -> None:
        self._names, self._bases = reading.names | {"forward"}, reading.bases
        # Copied values with their copies. The values stay alive, so that their ids stay valid.
        self._copies: dict[int, tuple[Any, Any]] = {id(each): (each, each) for each in saved}

    def fill(self, copied: Module) -> None:
        """Copies into a module's copy what the message may read from the module and its class."""
        state = vars(copied)
        for name, buffer in state["_buffers"].items():
            if name in self._names:
                state["_buffers"][name] = self.value(buffer)
        for name in self._names & state.keys() - OF_MODULES:
            state[name] = self.value(state[name])
        for name in self._names - state.keys():
            for base in type(copied).__mro__:
                if base not in self._bases and name in vars(base):
                    if not is_trusted(base):
                        state[name] = self._of_class(vars(base)[name], copied)
                    break

    def _of_class(self, attribute: Any, copied: Module) -> Any:
        if isinstance(attribute, staticmethod):
            return self.value(attribute.__func__)
        value = self.value(attribute)
        return types.MethodType(value, copied) if isinstance(value, types.FunctionType) else value

    def value(self, value: Any) -> Any:
        """Return a copy of a value that does not change any more."""
        if is_plain(value):
            return value
        if id(value) not in self._copies:
            self._copies[id(value)] = value, self._copy(value)
        return self._copies[id(value)][1]

    def _copy(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, Tensor):
            return value if value.requires_grad else value.detach().clone()
        if kind is types.FunctionType:
            return value if is_trusted(value) or replaced_by(value) is not value else self._function(value)
        if kind is functools.partial:
            keywords = {name: self.value(each) for name, each in value.keywords.items()}
            return functools.partial(self.value(value.func), *map(self.value, value.args), **keywords)
        if kind in (list, tuple, frozenset):
            return kind(map(self.value, value))
        if kind is dict:
            return {key: self.value(each) for key, each in value.items()}
        if isinstance(value, Module):
            return Snapshot(value, self).layer
        if is_holder(value):
            copied = copy.copy(value)
            vars(copied).update({name: self.value(each) for name, each in vars(value).items()})
            return copied
        return value

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        """Return a copy of a function that reads the current values."""
        paths: dict[str, list[Names]] = {}
        for path in scan_of(function.__code__).paths:
            paths.setdefault(path[0], []).append(path[1:])
        read = function.__globals__
        taken = {name: self._behind(read[name], rest) for name, rest in paths.items() if name in read}
        if "__builtins__" in read:
            taken["__builtins__"] = read["__builtins__"]
        copied = types.FunctionType(
            function.__code__,
            taken,
            function.__name__,
            self.value(function.__defaults__),
            tuple(map(self._cell, function.__closure__ or ())),
        )
        copied.__kwdefaults__ = self.value(function.__kwdefaults__)
        return copied

    def _cell(self, cell: types.CellType) -> types.CellType:
        try:
            return types.CellType(self.value(cell.cell_contents))
        except ValueError:  # the cell is empty
            return types.CellType()

    def _behind(self, value: Any, paths: list[Names]) -> Any:
        """Return a value's copy; of a Python module, the copy has the attributes that are read."""
        if not is_module(value) or not all(paths):
            return self.value(value)
        copied = types.ModuleType(value.__name__)
        for name in {path[0] for path in paths if path}:
            if hasattr(value, name):
                rest = [path[1:] for path in paths if path[:1] == (name,)]
                setattr(copied, name, self._behind(getattr(value, name), rest))
        return copied
