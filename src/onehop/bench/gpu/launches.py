"""Kernel launches, written down in place of done: what a GPU would be asked to compile and run."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

_TYPES = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.bool: "*i1",
}
_ALIGNMENT = 16
_NARROW = 2**31


@dataclass(frozen=True, slots=True)
class Launch:
    """What a kernel is compiled for.

    Attributes:
        kernel: The triton function.
        signature: Argument -> type, as triton writes types.
        constants: Argument -> value known when compiling.
        aligned: Places of arguments that are multiples of 16, as numbers or as addresses.
        options: Of the compiler, such as num_warps.
    """

    kernel: Any
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """The kernel's."""
        return str(self.kernel.__name__)

    @property
    def dtype(self) -> str:
        """Of the features: the narrowest float that the kernel reads or writes."""
        floats = [type_[1:] for _, type_ in self.signature if type_ in ("*fp64", "*fp32", "*bf16", "*fp16")]
        return min(floats, key=lambda each: int(each[2:]))


@contextlib.contextmanager
def recorded(found: dict[Launch, None]) -> Iterator[None]:
    """Within it, launches are added to ``found`` and nothing runs. Tensors may be on the CPU."""
    real = triton.runtime.jit.JITFunction.run

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        found[_launch(kernel, args, kwargs)] = None

    triton.runtime.jit.JITFunction.run = run
    try:
        yield
    finally:
        triton.runtime.jit.JITFunction.run = real


def launches_of(*calls: Callable[[], Any]) -> list[Launch]:
    """The launches of some calls, each once."""
    found: dict[Launch, None] = {}
    with recorded(found):
        for call in calls:
            call()
    return list(found)


def _launch(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
    """As triton specialises a call: constants, None and 1 are compiled in, multiples of 16 are noted."""
    names = [parameter.name for parameter in kernel.params]
    values = dict(zip(names, args, strict=False))
    options = {name: value for name, value in kwargs.items() if name not in names}
    values |= {name: value for name, value in kwargs.items() if name in names}
    signature, constants, aligned = {}, {}, []
    for place, parameter in enumerate(kernel.params):
        value = values[parameter.name]
        specialised = not parameter.do_not_specialize
        if isinstance(value, Tensor):
            signature[parameter.name] = _TYPES[value.dtype]
            if value.data_ptr() % _ALIGNMENT == 0:
                aligned.append(place)
        elif parameter.is_constexpr or value is None or (specialised and value == 1):
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
        else:
            signature[parameter.name] = (
                "fp32" if isinstance(value, float) else "i32" if value < _NARROW else "i64"
            )
            if specialised and isinstance(value, int) and value % _ALIGNMENT == 0:
                aligned.append(place)
    return Launch(
        kernel, tuple(signature.items()), tuple(constants.items()), tuple(aligned), tuple(options.items())
    )
