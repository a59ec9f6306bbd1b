"""Values that need no analysis: plain values, and functions of torch and PyG that only compute."""

import argparse
import dataclasses
import functools
import math
import operator
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import get_overridable_functions

PACKAGES = ("torch", "torch_geometric")
"""The packages whose functions are trusted to compute what their documentation says."""

_CONVERSIONS = ("__bool__", "__float__", "__int__", "__iter__", "__len__", "__reversed__")
OPERATORS = _CONVERSIONS + tuple(
    name
    for name in dir(Tensor)
    if name.startswith("__") and {name, name.replace("__r", "__", 1)} & vars(operator).keys() - {"__doc__"}
)
"""The names of tensor methods that Python's operators and conversions call."""

_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_OURS = str(Path(__file__).parents[1])
_COMPUTING_MODULES = frozenset({
    "math", "torch.nn.modules.activation", "torch_geometric.utils._degree", "torch_geometric.utils._scatter",
    "torch_geometric.utils._segment", "torch_geometric.utils._softmax", "torch_geometric.utils.num_nodes",
})  # fmt: skip
_BUILTINS = frozenset({
    abs, all, any, bool, dict, divmod, enumerate, float, functools.partial, int, isinstance, len, list, max,
    min, pow, range, reversed, round, slice, sum, super, tuple, zip, AssertionError, IndexError, KeyError,
    NotImplementedError, RuntimeError, TypeError, ValueError, Tensor,
})  # fmt: skip
# The builtins that read an integer without the methods of its class, as functions of math may.
_IN_C = frozenset({enumerate, range, slice})
# Functions of torch without tensor arguments, which are missing in torch's list of overridable functions.
_MAKERS = frozenset(
    getattr(torch, name)
    for name in (
        *("arange", "as_tensor", "empty", "eye", "finfo", "full", "iinfo", "is_tensor", "linspace"),
        *("logspace", "normal", "ones", "rand", "randint", "randn", "randperm", "scalar_tensor", "tensor"),
        "zeros",
    )
)
_MAKING_METHODS = frozenset({"new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"})
# Attributes of tensors and dtypes that reveal only shape and type.
_OF_TENSORS = frozenset({
    "H", "T", "bits", "device", "dtype", "eps", "imag", "is_cpu", "is_cuda", "itemsize", "layout", "mH", "mT",
    "ndim", "real", "resolution", "shape", "smallest_normal", "tiny",
})  # fmt: skip
# Tensor methods that read memory addresses, history or modes, or that do more than compute.
_NO_COMPUTING = frozenset({
    "apply_", "backward", "const_data_ptr", "data_ptr", "detach_", "dim_order", "is_contiguous",
    "is_distributed", "is_inference", "is_pinned", "is_set_to", "is_shared", "map2_", "map_", "module_load",
    "numpy", "pin_memory", "record_stream", "register_hook", "register_post_accumulate_grad_hook",
    "requires_grad_", "resize", "resize_", "resize_as", "resize_as_", "retain_grad", "set_", "share_memory_",
    "storage", "storage_offset", "storage_type", "tolist", "untyped_storage",
})  # fmt: skip
# Methods of lists, dictionaries and strings that change nothing.
_OF_CONTAINERS = frozenset({"count", "endswith", "get", "index", "items", "keys", "startswith", "values"})


def is_plain(value: Any) -> bool:
    """Return whether a value never changes."""
    return type(value) in _PLAIN or (type(value) in (tuple, torch.Size) and all_plain(value))


def all_plain(values: Iterable[Any]) -> bool:
    """Return whether values never change."""
    return all(map(is_plain, values))


def is_holder(value: Any) -> bool:
    """Return whether an object only holds values by name."""
    kind = type(value)
    return kind in (types.SimpleNamespace, argparse.Namespace) or (
        dataclasses.is_dataclass(kind)
        and hasattr(value, "__dict__")
        and kind.__getattribute__ is object.__getattribute__
        and not hasattr(kind, "__getattr__")
    )


def is_trusted(value: Any) -> bool:
    """Return whether a class or function belongs to torch or PyG."""
    return _module_of(value).partition(".")[0] in PACKAGES


def _module_of(value: Any) -> str:
    """Return the module name of a class or function; for a wrapper, the wrapper's own module."""
    name = value.__globals__.get("__name__") if isinstance(value, types.FunctionType) else None
    return name or getattr(value, "__module__", None) or ""


def is_of_tensors(name: str) -> bool:
    """Return whether tensors or containers have a method or attribute with this name that only computes."""
    return name in _of_torch()[1]


@functools.cache
def _of_torch() -> tuple[frozenset[Any], frozenset[str]]:
    """Return torch's functions on tensors, and the names of tensors' methods."""
    listed = get_overridable_functions()
    owners = [owner for owner in listed if isinstance(owner, types.ModuleType)]
    methods = {each.__name__ for each in listed[Tensor]}
    functions = {replaced_by(each) for owner in owners for each in listed[owner]}
    # Functions that other code has put in their place are excluded.
    functions = {each for each in functions if not isinstance(each, types.FunctionType) or is_trusted(each)}
    methods |= _MAKING_METHODS
    names = _OF_TENSORS.union(_OF_CONTAINERS, (name for name in methods if not name.startswith("_")))
    unfit = {getattr(torch, name, None) for name in _NO_COMPUTING}
    return frozenset((functions | _MAKERS) - unfit), names - _NO_COMPUTING


def takes_in_c(value: Any) -> bool:
    """Return whether a function reads integers without the methods of their class."""
    return value in _IN_C if isinstance(value, type) else value is math or _module_of(value) == "math"


def makes_tensors(value: Any) -> bool:
    """Return whether a value is a function of torch whose results are tensors."""
    return callable(value) and replaced_by(value) in _of_torch()[0]


def is_known(value: Any, trusted: bool) -> bool:
    """Return whether a value needs no analysis: it never changes, or is a function that only computes."""
    if is_plain(value) or computes(value):
        return True
    # Values that trusted functions read are not analysed, except functions that a user has put there.
    return trusted and (is_trusted(value) or not isinstance(value, types.FunctionType))


def computes(value: Any) -> bool:
    """Return whether a value is a function or class that is known to only compute."""
    if not isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return False
    value, (functions, _) = replaced_by(value), _of_torch()
    return value in functions or value in _BUILTINS or _module_of(value) in _COMPUTING_MODULES


def replaced_by(value: Any) -> Any:
    """Return the function that a wrapper of the patch replaces; any other value unchanged."""
    if isinstance(value, types.FunctionType) and value.__code__.co_filename.startswith(_OURS):
        return getattr(value, "onehop_theirs", getattr(value, "__wrapped__", value))
    return value


def is_replaced(value: Any) -> bool:
    """Return whether other code has replaced this function of torch or PyG."""
    value = replaced_by(value)
    return isinstance(value, types.FunctionType) and not is_trusted(value)


def is_module(value: Any) -> bool:
    """Return whether a value is a Python module."""
    return type(value) is types.ModuleType
