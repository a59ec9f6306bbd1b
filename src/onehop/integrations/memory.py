"""A caching allocator for torch's large CPU tensors, in use while a patch is in place.

Without it, the pages of each large tensor are mapped, faulted in and returned to the system. Under a patch,
torch takes large tensors from the pool of onehop's outputs, much as it takes GPU tensors from its caching
allocator. The pool never holds more than was in use at once, so a program's peak does not grow.

Leaving a patch pauses the allocator, and the pool stays for the next patch; ``unpatch()`` returns it to the
system.
"""

from enum import Enum

import torch

from onehop import native
from onehop.integrations import session
from onehop.integrations.reports import LOGGER

_PROBE_BYTES = 4 << 20
"""Size of a tensor that torch takes from the pool: at least the size in csrc/runtime/tensor_memory.cpp."""


class _State(Enum):
    """The state of the process. It outlives a patch."""

    ORDINARY = "torch allocates as it does without onehop"
    KEEPING = "torch takes large tensors from the pool"
    PAUSED = "torch allocates as it does without onehop, and the pool holds what was kept"
    IMPOSSIBLE = "torch's allocator is not the C library's"


_state = _State.ORDINARY


def keep() -> None:
    """Makes torch take large tensors from the pool; has no effect if torch's allocator does not allow it."""
    global _state
    with session.lock:
        if _state in (_State.KEEPING, _State.IMPOSSIBLE):
            return
        if native.extension.keep_tensor_memory() and _is_used():
            if _state is _State.ORDINARY:
                # The C library still holds the pages of freed large tensors, and will not reuse them.
                native.extension.trim_memory()
            _state = _State.KEEPING
        else:
            native.extension.pause_keeping()
            _state = _State.IMPOSSIBLE
            LOGGER.info("Freed memory is not kept: torch's allocator is another one than the C library's.")


def _is_used() -> bool:
    probe = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device="cpu")
    return native.extension.is_from_pool(probe.data_ptr())


def pause() -> None:
    """Makes torch allocate as before; the pool stays for the next patch."""
    global _state
    if _state is _State.KEEPING:
        with session.lock:
            native.extension.pause_keeping()
            _state = _State.PAUSED


def give_back() -> None:
    """Makes torch allocate as before, and returns the pool to the system."""
    global _state
    with session.lock:
        pause()
        if _state is _State.PAUSED:
            native.extension.pool_clear()
        _state = _State.ORDINARY
