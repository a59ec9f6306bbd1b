"""All that a program can reach, as facts that can be compared."""

import collections
import enum
import functools
import io
import itertools
import random
import re
import types
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from tests.differential.observe import Seen

Facts = dict[str, "str | float | Seen"]
"""What was seen, by its path: text that must be the same, or numbers that may differ by rounding."""

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_DEPTH = 8


class _Plain(MessagePassing):
    """A layer without anything of its own. PyG renders functions for the class of each layer."""


# What PyG keeps in a layer, and code of a class.
_OF_PYG = frozenset(vars(_Plain()))
_PLAIN = (bool, int, str, bytes, bytearray, type(None), torch.dtype, torch.Size, enum.Enum)


def facts_of(module: Any, s: Any) -> Facts:
    """What can be reached from the module of a program, and from its namespace."""
    found = _Found(module.__name__)
    for name, value in vars(s).items():
        found.look(f"s.{name}", value)
    for name, value in vars(module).items():
        if not name.startswith("__") and name not in ("STEPS", "SPECIAL"):
            found.look(name, value)
    return found.facts


class _Found:
    """What was found so far."""

    def __init__(self, module: str) -> None:
        self.facts: Facts = {}
        self._module = module
        self._met: dict[int, Any] = {}

    def look(self, path: str, value: Any) -> None:
        """Notes a value, and what it holds."""
        if isinstance(value, float):
            self.facts[path] = value
            return
        if isinstance(value, _PLAIN):
            self.facts[path] = _ADDRESS.sub("", repr(value))
            return
        if isinstance(value, types.ModuleType) or id(value) in self._met or path.count("/") > _DEPTH:
            return
        self._met[id(value)] = value
        self._look_into(path, value)

    def _look_into(self, path: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self._tensor(path, value)
        elif isinstance(value, np.ndarray | np.generic):
            self._tensor(path, torch.from_numpy(np.array(value)))
        elif isinstance(value, dict | types.MappingProxyType):
            self.facts[path] = f"{type(value).__name__} of {len(value)}"
            for key, each in list(value.items()):
                self.look(f"{path}/{_ADDRESS.sub('', repr(key))}", each)
        elif isinstance(value, list | tuple | collections.deque):
            self.facts[path] = f"{type(value).__name__} of {len(value)}"
            for number, each in enumerate(list(value)):
                self.look(f"{path}/{number}", each)
        elif isinstance(value, set | frozenset):
            self.facts[path] = str(sorted(map(repr, value)))
        elif isinstance(value, torch.nn.Module):
            self._layer(path, value)
        elif isinstance(value, torch.optim.Optimizer):
            self.look(f"{path}/state", list(value.state.values()))
        else:
            self._other(path, value)

    def _other(self, path: str, value: Any) -> None:
        if isinstance(value, torch.Generator):
            self.facts[path] = str(hash(value.get_state().numpy().tobytes()))
        elif isinstance(value, random.Random):
            self.facts[path] = str(hash(value.getstate()))
        elif isinstance(value, np.random.Generator):
            self.facts[path] = repr(value.bit_generator.state)
        elif isinstance(value, itertools.count):
            self.facts[path] = repr(value)
        elif isinstance(value, io.StringIO):
            self.facts[path] = value.getvalue()
        elif isinstance(value, types.GeneratorType):
            self.look(f"{path}/locals", dict(value.gi_frame.f_locals) if value.gi_frame else None)
        elif isinstance(value, functools.partial):
            self.look(f"{path}/function", value.func)
            self.look(f"{path}/given", value.args)
        elif isinstance(value, types.MethodType):
            self.look(f"{path}/function", value.__func__)
        elif isinstance(value, functools._lru_cache_wrapper):
            self.facts[f"{path}/cache"] = repr(value.cache_info())
        elif isinstance(value, types.FunctionType):
            self._function(path, value)
        elif isinstance(value, weakref.ref):
            self.facts[path] = str(value() is None)
        elif isinstance(value, type):
            if value.__module__ == self._module:
                self._attributes(path, value)
        elif type(value).__module__ in (self._module, "types"):
            self.facts[path] = type(value).__name__
            self._attributes(path, value)
        elif "_iterator" in type(value).__name__:
            self.facts[path] = str(value.__length_hint__())
        else:
            self.facts[path] = type(value).__name__

    def _attributes(self, path: str, value: Any) -> None:
        slots = {name: getattr(value, name) for name in getattr(type(value), "__slots__", ())}
        for name, each in [*getattr(value, "__dict__", {}).items(), *slots.items()]:
            if not name.startswith("__"):
                self.look(f"{path}/{name}", each)

    def _function(self, path: str, function: types.FunctionType) -> None:
        if function.__module__ != self._module:
            return
        self.look(f"{path}/defaults", function.__defaults__)
        self.look(f"{path}/keywords", function.__kwdefaults__)
        own = {name: each for name, each in vars(function).items() if not name.startswith("_")}
        self.look(f"{path}/attributes", own)
        for number, cell in enumerate(function.__closure__ or ()):
            self.look(f"{path}/cell {number}", cell.cell_contents)

    def _layer(self, path: str, layer: torch.nn.Module) -> None:
        lazy = torch.nn.parameter.UninitializedTensorMixin
        for name, each in [*layer.named_parameters(), *layer.named_buffers()]:
            if not isinstance(each, lazy):
                self._met[id(each)] = each
                self._tensor(f"{path}/{name}", each, counted=True)
        for name, module in layer.named_modules():
            self._met[id(module)] = module
            here = f"{path}/{name}" if name else path
            self.facts[here] = f"{type(module).__name__}, training {module.training}"
            counted = [
                f"{name}: {len(each)}"
                for name, each in vars(module).items()
                if name.endswith("_hooks") and each
            ]
            self.facts[f"{here}/hooks"] = str(counted)
            for key, value in vars(module).items():
                if key not in _OF_PYG and not key.startswith("_forward"):
                    self.look(f"{here}/{key}", value)

    def _tensor(self, path: str, tensor: Tensor, counted: bool = False) -> None:
        """Notes a tensor; ``counted`` if it is promised how often it was written to."""
        if tensor.layout is not torch.strided:
            self.facts[path] = str(tensor.layout)
            self.look(f"{path}/values", tensor.values())
            return
        of_gradient = path.endswith(".grad")
        facts: dict[str, Any] = {
            "dtype": tensor.dtype,
            "shape": tuple(tensor.shape),
            "type": type(tensor).__name__,
            "requires_grad": tensor.requires_grad,
            "is_leaf": tensor.is_leaf,
            "is_inference": tensor.is_inference(),
        }
        counted |= path.startswith(("s.x", "s.edges", "s.more"))
        if counted and not of_gradient and not tensor.is_inference():
            facts["writes"] = tensor._version
        with torch.no_grad():
            plain = tensor.detach().as_subclass(Tensor).clone()
            self.facts[path] = Seen(facts, plain)
        if not of_gradient and (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
            self._tensor(f"{path}.grad", tensor.grad)
