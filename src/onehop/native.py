"""The extension module, ready to use: torch loaded first, its OpenMP runtime bound, instruction set chosen.

Everything in onehop that needs native code takes it from here.
"""

import contextlib
import ctypes
import math
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

# The command imports this before anything that an older torch may lack.
from onehop import config, thresholds, torch_release  # noqa: F401
from onehop.errors import BackendError, ConfigurationError, ExtensionError

try:
    from onehop import _native as extension
except ImportError as error:
    raise ExtensionError(
        f"onehop's compiled kernels cannot be loaded by Python {platform.python_version()} on "
        f"{platform.system()} {platform.machine()} ({error}). Install onehop for this machine: "
        "pip install --force-reinstall onehop."
    ) from error

__all__ = [
    "DTYPE_CODES",
    "TORCH_CPU_LIBRARY",
    "address",
    "empty",
    "extension",
    "let_go",
    "one_thread",
    "threads",
    "torchs_kernels",
]

# Numbers of onehop::DType in csrc/include/onehop/kernels.hpp.
DTYPE_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}

# Contains, or depends on, the OpenMP runtime that all our loops run on.
TORCH_CPU_LIBRARY = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")

# Not a string, which torch would read anew at every call.
CPU = torch.device("cpu")


class WithoutMemoryError(BackendError):
    """A tensor has entries and no memory: torch keeps some gradients that are all zeros so."""


def threads() -> int:
    """Number of threads of a kernel: torch's number."""
    return torch.get_num_threads()


def address(tensor: torch.Tensor) -> int:
    """The address of a CPU tensor's first element, for native code.

    Raises:
        BackendError: The tensor is on another device, where native code cannot read. On "meta" the address
            would be 0, which stands for an omitted operand.
        WithoutMemoryError: The address would be 0 of a tensor on the CPU.
    """
    if not tensor.is_cpu:
        raise BackendError(
            f"native code was given a tensor of shape {list(tensor.shape)} on {tensor.device}, and reads the "
            "CPU's memory alone; move all operands to one device."
        )
    return tensor.data_ptr() or _of_no_entries(tensor)


def _of_no_entries(tensor: torch.Tensor) -> int:
    if not tensor.numel():
        return 0
    raise WithoutMemoryError(
        f"native code was given a tensor of shape {list(tensor.shape)} without memory, as torch keeps zeros, "
        "or one whose storage was resized to nothing; give a tensor that has its own, with .clone()."
    )


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised CPU tensor, from the pool of kept memory when it is large.

    Args:
        shape: Extents, one or more.
        dtype: One of the keys of :data:`DTYPE_CODES`.

    Raises:
        MemoryError: The system has no memory of that size.
    """
    if math.prod(shape) * dtype.itemsize < thresholds.now.pooled_bytes:
        # Extents one by one, which torch takes a third sooner.
        return torch.empty(*shape, dtype=dtype, device=CPU)
    return extension.pool_empty(shape, DTYPE_CODES[dtype])


def let_go() -> None:
    """Returns to the system what the pool and the C library keep of memory that was freed.

    Between steps that each take as much memory as they may: what one has kept is of sizes that the next one
    has no use for.
    """
    extension.pool_clear()
    extension.trim_memory()


def one_thread() -> None:
    """Lets the calling thread, and no other, run kernels and torch's loops without help from others.

    For threads that work beside the program's own: the number of threads is each thread's own in OpenMP.
    """
    torch.get_num_threads()  # torch sets it in each thread where it is first read
    ctypes.CDLL(TORCH_CPU_LIBRARY).omp_set_num_threads(1)


@contextlib.contextmanager
def torchs_kernels() -> Iterator[None]:
    """Lets torch's operators run in torch's own kernels inside the block, in its thread, patched or not."""
    before = extension.leave_to_torch(True)
    try:
        yield
    finally:
        extension.leave_to_torch(before)


def _choose_isa() -> None:
    wanted = config.isa()
    if wanted is not None and not extension.select_isa(wanted):
        available = ", ".join(extension.available_isas())
        raise ConfigurationError(
            f"ONEHOP_ISA={wanted!r}: this processor and this build have {available}. "
            f"Set it to one of these, or unset it."
        )


extension.bind_openmp(TORCH_CPU_LIBRARY)
_choose_isa()
extension.pool_set_limit(config.pool_bytes())
