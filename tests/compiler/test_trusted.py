"""Names of Python, of torch and of tensors that messages may use, and those that they may not."""

import argparse
import dataclasses
import types
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from onehop.compiler.functions import Opaque
from onehop.compiler.reading import Reading
from onehop.compiler.trusted import is_holder, is_plain, takes_in_c
from tests.compiler.test_reading import Base

# Each reads something that is no operand, writes, or does what no operation of torch shows.
OF_PYTHON = [
    "print", "getattr", "setattr", "delattr", "hasattr", "vars", "dir", "globals", "locals", "id", "hash",
    "type", "repr", "str", "format", "iter", "next", "map", "filter", "sorted", "set", "frozenset",
    "object", "callable", "eval", "exec", "compile", "open", "input", "breakpoint", "memoryview",
    "bytearray", "classmethod", "property",
]  # fmt: skip
OF_TORCH = [
    "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "Generator", "is_grad_enabled",
    "set_grad_enabled", "no_grad", "is_inference_mode_enabled", "get_default_dtype", "set_default_dtype",
    "get_num_threads", "set_num_threads", "from_numpy", "frombuffer", "from_file", "load", "save",
    "compile", "set_printoptions", "set_flush_denormal", "use_deterministic_algorithms",
    "is_warn_always_enabled", "resize_as_", "is_inference", "is_distributed",
    "random.manual_seed", "autograd.grad", "autograd.backward",
    "utils.checkpoint.checkpoint", "cuda.synchronize", "distributed.all_reduce",
]  # fmt: skip
METHODS = [
    "apply_", "backward", "const_data_ptr", "data_ptr", "detach_", "dim_order", "is_contiguous",
    "is_distributed", "is_inference", "is_pinned", "is_set_to", "is_shared", "map2_", "map_", "module_load",
    "numpy", "pin_memory", "record_stream", "register_hook", "register_post_accumulate_grad_hook",
    "requires_grad_", "resize", "resize_", "resize_as", "resize_as_", "retain_grad", "set_",
    "share_memory_", "storage", "storage_offset", "storage_type", "tolist", "untyped_storage",
    "_is_view", "_values", "_nnz",
    # Of containers and texts.
    "append", "appendleft", "clear", "copy", "discard", "extend", "format", "insert", "pop", "popitem",
    "popleft", "remove", "reverse", "setdefault", "update", "send", "throw", "close", "write", "read",
]  # fmt: skip
ATTRIBUTES = [
    "grad", "grad_fn", "requires_grad", "is_leaf", "retains_grad", "output_nr", "data", "names", "name",
    "_base", "_version", "_backward_hooks", "_grad", "is_sparse", "is_mkldnn", "is_quantized", "nbytes",
    "__dict__", "__class__", "_cdata", "__cuda_array_interface__", "__array_interface__",
]  # fmt: skip


def reading_of(expression: str) -> Reading:
    """The reading of a message that returns an expression."""
    message = eval(f"lambda self, x_j: {expression}", {"torch": torch, "F": F, "Tensor": Tensor})
    return Reading(type("Kind", (Base,), {"message": message})(), (), ("message",))


@pytest.mark.parametrize("name", OF_PYTHON)
def test_what_python_has_and_may_do_more_is_refused(name):
    with pytest.raises(Opaque, match=f"uses {name}, of which"):
        reading_of(f"{name}(x_j)")


@pytest.mark.parametrize("name", OF_TORCH)
def test_functions_of_torch_that_do_more_are_refused(name):
    with pytest.raises(Opaque, match=f"uses torch.{name}, of which"):
        reading_of(f"torch.{name}(x_j)")


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_ask_about_memory_history_or_modes_or_change_are_refused(name):
    with pytest.raises(Opaque, match=f"uses {name}, of which"):
        reading_of(f"x_j.{name}(x_j)")


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_that_tell_more_than_shape_and_type_are_refused(name):
    with pytest.raises(Opaque, match=f"uses {name}, of which"):
        reading_of(f"x_j.{name}")


ONLY_COMPUTES = [
    "x_j * abs(-2) * int(True) * float(2) * bool(1) * pow(2, 2) * round(1.5) * divmod(3, 2)[0]",
    "x_j * all([True]) * any((True,)) * max(1, 2) * min(1, 2) * sum([1, 2]) * len(dict(a=1))",
    "sum(x * at for at, x in enumerate(list(x_j)))",
    "sum(x * y for x, y in zip(x_j, reversed(tuple(x_j))))",
    "x_j[slice(0, 1)] * sum(range(2))",
    "x_j if isinstance(x_j, Tensor) and torch.is_tensor(x_j) else -x_j",
    "x_j * torch.arange(4) + torch.empty(4) + torch.eye(4) + torch.full((4,), 1.0) + torch.linspace(0, 1, 4)",
    "x_j * torch.logspace(0, 1, 4) + torch.normal(0.0, 1.0, (4,)) + torch.ones(4) + torch.zeros(4)",
    "x_j * torch.rand(4) + torch.randint(0, 2, (4,)) + torch.randn(4) + torch.randperm(4)",
    "x_j * torch.tensor(1.0) * torch.scalar_tensor(1.0) * torch.as_tensor(2.0)",
    "x_j.new_empty(4) + x_j.new_full((4,), 1) + x_j.new_ones(4) + x_j.new_tensor([1.0]) + x_j.new_zeros(4)",
    "x_j.T + x_j.H + x_j.mT + x_j.mH + x_j.real + x_j.imag * x_j.ndim * x_j.itemsize",
    "x_j.to(x_j.device, x_j.dtype) if x_j.is_cpu or x_j.is_cuda or x_j.layout == torch.strided else -x_j",
    "x_j * (torch.finfo(x_j.dtype).tiny + torch.finfo(x_j.dtype).resolution + torch.finfo(x_j.dtype).eps)",
    "x_j * torch.finfo(x_j.dtype).smallest_normal * torch.iinfo(torch.int64).bits",
    "x_j * sum(dict(a=1).values()) * len(dict(a=1).keys()) * len(dict(a=1).items()) * dict(a=1).get('a')",
    "x_j * 'a'.startswith('a') * 'a'.endswith('a') * (1, 2).count(1) * (1, 2).index(1)",
    "x_j.to(torch.float64, memory_format=torch.contiguous_format)",
    "F.relu(x_j).sum(-1) + F.multi_head_attention_forward(x_j)",
]


@pytest.mark.parametrize("expression", ONLY_COMPUTES)
def test_what_only_computes_is_read(expression):
    assert "message" in reading_of(expression).names


@pytest.mark.parametrize(
    "name",
    [
        "AssertionError",
        "IndexError",
        "KeyError",
        "NotImplementedError",
        "RuntimeError",
        "TypeError",
        "ValueError",
    ],
)
def test_errors_may_be_raised(name):
    assert reading_of(f"{name}('no such form')").names


class Text(str):
    """A text that may have methods of its own."""


@pytest.mark.parametrize(
    "value",
    [
        None, True, 1, 1.0, "a", torch.float32, torch.device("cpu"), torch.strided, torch.contiguous_format,
        (), (1, ("a", None)), torch.Size([1]),
    ],
)  # fmt: skip
def test_values_that_never_change_are_plain(value):
    assert is_plain(value)


@pytest.mark.parametrize(
    "value", [[], {}, set(), frozenset(), (1, []), torch.ones(1), Text("a"), object(), len, int, F, 1j, b"a"]
)
def test_other_values_are_not(value):
    assert not is_plain(value)


@dataclasses.dataclass
class Settings:
    scale: float = 1.0


@dataclasses.dataclass(slots=True)
class Slots:
    scale: float = 1.0


@dataclasses.dataclass
class Found(Settings):
    def __getattr__(self, name: str) -> Any:
        return len(name)


@dataclasses.dataclass
class Watched(Settings):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Space(types.SimpleNamespace):
    pass


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        (types.SimpleNamespace(), True),
        (argparse.Namespace(), True),
        (Settings(), True),
        (Slots(), False),
        (Found(), False),
        (Watched(), False),
        (Space(), False),
        (object(), False),
        (Settings, False),
    ],
)
def test_what_holds_values_and_does_nothing_is_told_by_its_class(value, holds):
    assert is_holder(value) == holds


def test_what_reads_numbers_in_c_is_known():
    assert all(map(takes_in_c, (range, enumerate, slice, __import__("math"), __import__("math").sqrt)))
    assert not any(map(takes_in_c, (len, int, torch.add, 2.0, None)))
