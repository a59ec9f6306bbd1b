"""The extension module, loaded after torch, bound to torch's OpenMP runtime, with the instruction set chosen.

All code in onehop that needs native functions imports them from here.
"""

import contextlib
import ctypes
import math
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

# The command imports this module first, because an older torch may lack what others import.
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

# This library contains, or depends on, the OpenMP runtime that all our loops use.
TORCH_CPU_LIBRARY = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")

# A device object and not a string, which torch would parse in every call.
CPU = torch.device("cpu")


class WithoutMemoryError(BackendError):
    """A tensor has entries but no memory, as some all-zero gradients of torch."""


def threads() -> int:
    """Return the number of threads of a kernel, which is torch's number."""
    return torch.get_num_threads()


def address(tensor: torch.Tensor) -> int:
    """Return the address of a CPU tensor's first element, for native code.

    Raises:
        BackendError: The tensor is on another device, which native code cannot read. On "meta" the address
            would be 0, which represents an omitted operand.
        WithoutMemoryError: The tensor is on the CPU, but its address is 0.
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
    """Return an uninitialised CPU tensor; a large one comes from the memory pool.

    Args:
        shape: The sizes, one or more.
        dtype: One of the keys of :data:`DTYPE_CODES`.

    Raises:
        MemoryError: The system does not have enough memory.
    """
    if math.prod(shape) * dtype.itemsize < thresholds.now.pooled_bytes:
        # The sizes are passed one by one, which is a third faster in torch.
        return torch.empty(*shape, dtype=dtype, device=CPU)
    return extension.pool_empty(shape, DTYPE_CODES[dtype])


def let_go() -> None:
    """Return freed memory that the pool and the C library keep to the system.

    Use this between steps that each need as much memory as possible, because the next step may need blocks of
    other sizes.
    """
    extension.pool_clear()
    extension.trim_memory()


def one_thread() -> None:
    """Let only the calling thread run kernels and torch's loops on a single thread.

    This is for background threads; in OpenMP, each thread has its own number of threads.
    """
    torch.get_num_threads()  # torch sets the number in each thread when it is first read
    ctypes.CDLL(TORCH_CPU_LIBRARY).omp_set_num_threads(1)


@contextlib.contextmanager
def torchs_kernels() -> Iterator[None]:
    """Lets this thread's torch operators use torch's own kernels inside the block, even under the patch."""
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
