"""The C library's memory policy: freed memory stays in the process once a layer gains from that.

Each large tensor that is made and freed costs the system's pages, given back and faulted in anew. Memory that
is kept costs nothing, but stays with the process, its peak included. Programs whose layers all run their
framework's own code keep the policy that they had.
"""

from dataclasses import replace

from torch import Tensor

from onehop import native, thresholds
from onehop.integrations import session


def gained(x: Tensor) -> None:
    """Notes that a layer takes the fast path with these features: the policy is for large ones on the CPU."""
    if session.now.may_keep_memory and x.is_cpu and x.nbytes >= thresholds.now.policy_bytes:
        _keep()


def _keep() -> None:
    with session.lock:
        now = session.now
        if now.may_keep_memory:
            native.extension.keep_freed_memory(True)
            session.enter(replace(now, memory_kept=True))


def after(keep: bool) -> bool:
    """Restores the C library's policy if freed memory is kept and is to be kept no longer.

    Args:
        keep: The setting of the session that comes.

    Returns:
        Whether freed memory is kept from now on, before the next gain.
    """
    kept = session.now.memory_kept
    if kept and not keep:
        native.extension.keep_freed_memory(False)
    return kept and keep
