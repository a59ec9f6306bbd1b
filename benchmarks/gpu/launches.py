"""Kernel launches, written down instead of done: what a GPU would compile and run."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor

from onehop.kernels.triton import availability

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
_FLOATS = ("*fp64", "*fp32", "*bf16", "*fp16")
Type = str | tuple["Type", ...]
Path = tuple[int, ...]
_NARROW = 2**31
# From triton 3.7 on, the key of its cache says of constants, too, that nothing is known of their alignment.
_NOTES_CONSTANTS = availability.installed() >= (3, 7)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a kernel is compiled for.

    Attributes:
        kernel: The triton function.
        signature: Argument -> type, as triton writes types; of a tuple, the tuple of types.
        constexprs: Path -> value known when compiling. A path is an argument's place and, in a tuple, the
            places in that.
        alignments: Path -> whether the number or the address is a multiple of 16; False for what is compiled
            in. Paths that triton does not specialise on are absent. False changes no code, but the key of
            triton's cache.
        options: Of the compiler, such as num_warps.
    """

    kernel: Any
    signature: tuple[tuple[str, Type], ...]
    constexprs: tuple[tuple[Path, Any], ...]
    alignments: tuple[tuple[Path, bool], ...]
    options: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """The kernel's."""
        return str(self.kernel.__name__)

    @property
    def dtype(self) -> str:
        """Of the features: the narrowest float that the kernel reads or writes."""
        floats = [type_[1:] for type_ in _leaves(dict(self.signature).values()) if type_ in _FLOATS]
        return min(floats, key=lambda each: int(each[2:]))

    @property
    def constants(self) -> dict[str, Any]:
        """What is known when compiling, by name, a form's fields by theirs; but for what is None."""
        found: dict[str, Any] = {}
        for path, value in self.constexprs:
            if is_dataclass(value) and not isinstance(value, type):
                found |= {name: each for name, each in asdict(value).items() if name != "ACC"}
            elif value is not None and len(path) == 1:
                found[self.signature[path[0]][0]] = value
        return found


@dataclass(frozen=True)
class _Uncompiled:
    """A stand-in for a kernel of which only the registers are read, for a number of programs."""

    metadata: SimpleNamespace
    n_regs: int = 128

    def _init_handles(self) -> None:
        pass


def _leaves(types: Iterable[Type]) -> Iterator[str]:
    for each in types:
        if isinstance(each, str):
            yield each
        else:
            yield from _leaves(each)


@contextlib.contextmanager
def recorded(found: dict[Launch, None]) -> Iterator[None]:
    """Within it, launches are added to ``found`` and nothing runs. Tensors may be on the CPU."""
    real = triton.runtime.jit.JITFunction.run

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        found[_launch(kernel, args, kwargs)] = None
        return _Uncompiled(SimpleNamespace(shared=0, num_warps=kwargs["num_warps"])) if warmup else None

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
    signature: dict[str, Type] = {}
    constexprs: dict[Path, Any] = {}
    alignments: dict[Path, bool] = {}

    def type_of(value: Any, path: Path, constant: bool, specialised: bool) -> Type:
        if isinstance(value, tuple):
            types = [type_of(each, (*path, at), constant, True) for at, each in enumerate(value)]
            return type(value)(*types) if hasattr(value, "_fields") else tuple(types)
        if isinstance(value, Tensor):
            alignments[path] = value.data_ptr() % _ALIGNMENT == 0
            return _TYPES[value.dtype]
        if constant or value is None or (specialised and value == 1 and isinstance(value, int)):
            constexprs[path] = value
            if len(path) == 1 and _NOTES_CONSTANTS:
                alignments[path] = False
            return "constexpr"
        if isinstance(value, float):
            return "fp32"
        if specialised:
            alignments[path] = value % _ALIGNMENT == 0
        return "i32" if value < _NARROW else "i64"

    for place, parameter in enumerate(kernel.params):
        name, specialised = parameter.name, not parameter.do_not_specialize
        signature[name] = type_of(values[name], (place,), parameter.is_constexpr, specialised)
    return Launch(
        kernel,
        tuple(signature.items()),
        tuple(constexprs.items()),
        tuple(alignments.items()),
        tuple(options.items()),
    )
