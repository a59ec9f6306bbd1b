"""Memory of torch's tensors: while patched, the pages of a large one that is freed wait for the next.

A large tensor that is made and freed costs the system's pages, given back and faulted in anew. From the first
layer on that takes a fast path, torch takes large tensors from the pool of onehop's own outputs, much as it
takes those of GPUs from a caching allocator. The pool never holds more than was in use at once, so that a
program's peak stays what it was.

Leaving a patch pauses that, and what was kept waits for the next patch; ``unpatch()`` gives it back. Programs
whose layers all run their framework's own code keep the memory that they had.
"""

from enum import Enum

import torch
from torch import Tensor

from onehop import native, thresholds
from onehop.integrations import session
from onehop.integrations.reports import LOGGER

_PROBE_BYTES = 4 << 20
"""Size of a tensor that shows whether torch uses the pool; csrc/runtime/tensor_memory.cpp has the least."""


class _State(Enum):
    """State of the process, which outlives a patch."""

    ORDINARY = "torch allocates as it does without onehop"
    KEEPING = "torch takes large tensors from the pool"
    PAUSED = "torch allocates as it does without onehop, and the pool holds what was kept"
    IMPOSSIBLE = "torch's memory comes from elsewhere than the C library's allocator"


_state = _State.ORDINARY


def gained(x: Tensor) -> None:
    """Notes that a layer takes the fast path: large features on the CPU are what the pool is for.

    Args:
        x: The layer's features.
    """
    global _state
    if _state is _State.KEEPING or x.nbytes < thresholds.now.policy_bytes or not x.is_cpu:
        return
    with session.lock:
        if not session.now.settings.keep_memory or _state in (_State.KEEPING, _State.IMPOSSIBLE):
            return
        if native.extension.keep_tensor_memory() and _is_used():
            if _state is _State.ORDINARY:
                # The C library holds pages of large tensors that were freed, which the next will not ask for.
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
    """Has torch allocate as it did before; what was kept stays, for the next patch."""
    global _state
    if _state is _State.KEEPING:
        with session.lock:
            native.extension.pause_keeping()
            _state = _State.PAUSED


def give_back() -> None:
    """Has torch allocate as it did before, and gives back what was kept."""
    global _state
    with session.lock:
        pause()
        if _state is _State.PAUSED:
            native.extension.pool_clear()
        _state = _State.ORDINARY
