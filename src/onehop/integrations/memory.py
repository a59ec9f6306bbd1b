"""The C library's memory policy: freed memory is kept in the process once a layer gains from that.

Each large tensor that is made and freed costs the system's pages, given back and faulted in anew. Memory that
is kept costs nothing, but stays with the process, its peak included. Programs whose layers all run their
framework's own code keep the policy that they had.
"""

from torch import Tensor

from onehop import native, thresholds

_allowed = False
_keeping = False


def allow(keep: bool) -> None:
    """Lets freed memory be kept from the next gain on, or restores the C library's policy."""
    global _allowed, _keeping
    _allowed = keep
    if _keeping and not keep:
        _keeping = False
        native.extension.keep_freed_memory(False)


def gained(x: Tensor) -> None:
    """Notes that a layer takes the fast path with these features: the policy is for large ones on the CPU."""
    global _keeping
    if _allowed and not _keeping and x.is_cpu and x.nbytes >= thresholds.now.policy_bytes:
        _keeping = True
        native.extension.keep_freed_memory(True)
