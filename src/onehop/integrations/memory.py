"""Memory of torch's tensors: the pages of a large one that is freed wait for the next, once layers gain from that.

A large tensor that is made and freed costs the system's pages, given back and faulted in anew. From the first
layer on that takes a fast path, torch takes large tensors from the pool of onehop's own outputs, as its caching
allocator does on GPUs. The pool never holds more than was in use at once, so that a program's peak stays what
it was.

Leaving a patch pauses that, and what was kept waits for the next patch; ``unpatch()`` gives it back. Programs
whose layers all run their framework's own code keep the memory that they had.
"""

import torch
from torch import Tensor

from onehop import native, thresholds
from onehop.integrations import session

_PROBE_BYTES = 4 << 20
"""Size of a tensor that shows whether torch's tensors come from the pool; see tensor_memory.cpp for the least."""

_keeping = False
"""Whether torch takes tensors from the pool now."""

_possible = True
"""Whether torch's tensors can come from the pool in this process; True until that was found to be wrong."""


def gained(x: Tensor) -> None:
    """Notes that a layer takes the fast path: large features on the CPU are what the pool is for.

    Args:
        x: The layer's features.
    """
    global _keeping, _possible
    if _keeping or not _possible or x.nbytes < thresholds.now.policy_bytes or not x.is_cpu:
        return
    with session.lock:
        if session.now.settings.keep_memory and not _keeping:
            _keeping = _possible = native.extension.keep_tensor_memory() and _is_used()
            if not _possible:
                native.extension.pause_keeping()


def _is_used() -> bool:
    probe = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device="cpu")
    return native.extension.is_from_pool(probe.data_ptr())


def pause() -> None:
    """Has torch allocate as it did before; what was kept stays, for the next patch."""
    global _keeping
    if _keeping:
        with session.lock:
            native.extension.pause_keeping()
            _keeping = False


def give_back() -> None:
    """Has torch allocate as it did before, and gives back what was kept."""
    global _possible
    with session.lock:
        pause()
        _possible = True
        native.extension.pool_clear()
