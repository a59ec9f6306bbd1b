"""The C library's memory policy: freed memory stays in the process once layers gain from that.

Each large tensor that is made and freed costs the system's pages, given back and faulted in anew. Memory that
is kept costs nothing, but stays with the process, its peak included. So nothing is kept before a layer that
gains has come round again, which is a step of training: what the process held at its peak until then, with
the policy that it had, and the messages that the fast path has no need of, bound what is kept afterwards.
Whenever more is resident, what is free is given back, and now and then, ever more rarely, steps are measured
anew.

Leaving a patch pauses the policy, and what was kept waits for the next patch; ``unpatch()`` gives it back.
Programs whose layers all run their framework's own code keep the policy that they had.
"""

import weakref
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from onehop import native, thresholds
from onehop.graph import Graph
from onehop.integrations import session

_STEPS = 2
"""Steps that are measured first. From the second on, sums of constant features are kept."""

_ABOVE_PEAK = 20
"""What is kept may exceed the peak by this part of it, for free blocks do not fit every request."""

_MESSAGES_OF_PEAK = 2
"""Messages that are not made count up to this part of the peak."""


@dataclass(frozen=True, slots=True)
class _Policy:
    """Knowledge of the process, which outlives a patch.

    Attributes:
        kept: Whether the C library keeps freed memory; None if it is paused, and goes on with the next gain.
        most_bytes: The bound of what is resident; 0 until it was measured.
        steps: Steps to measure, this one included.
        patience: How often the bound may be exceeded before steps are measured anew.
        exceeded: How often it was.
        before_bytes: The peak when the measurement began.
        messages_bytes: The largest messages that the fast path did not make.
        layer: The layer whose return ends a step; None before the first.
    """

    kept: bool | None = False
    most_bytes: int = 0
    steps: int = _STEPS
    patience: int = 1
    exceeded: int = 0
    before_bytes: int = 0
    messages_bytes: int = 0
    layer: weakref.ref[Any] | None = None


_policy = _Policy()


def gained(layer: Any, x: Tensor, graph: Graph) -> None:
    """Notes that a layer takes the fast path: the policy is for large features on the CPU.

    Args:
        layer: The layer.
        x: Its features.
        graph: Over which edges.
    """
    global _policy
    if not session.now.settings.keep_memory or not x.is_cpu or x.nbytes < thresholds.now.policy_bytes:
        return
    with session.lock:
        if session.now.settings.keep_memory:
            messages = graph.num_edges * (x.nbytes // max(graph.num_src, 1))
            if messages > _policy.messages_bytes:
                _policy = replace(_policy, messages_bytes=messages)
            _policy = _after_gain(_policy, layer)


def _after_gain(policy: _Policy, layer: Any) -> _Policy:
    extension = native.extension
    if policy.kept is None:
        extension.keep_freed_memory(policy.most_bytes)
        return replace(policy, kept=True)
    if policy.kept:
        extension.bound_kept_memory()
        if not extension.kept_memory_exceeded():
            return policy
        exceeded = policy.exceeded + 1
        if exceeded < policy.patience:
            return replace(policy, exceeded=exceeded)
        extension.give_back_memory()
        again = 4 * policy.patience
        policy = replace(policy, kept=False, steps=_STEPS, patience=again, exceeded=0, layer=None)
    if policy.layer is None:
        return replace(policy, layer=weakref.ref(layer), before_bytes=extension.peak_resident_bytes())
    if policy.layer() not in (layer, None):
        return policy
    if policy.steps > 1:
        return replace(policy, steps=policy.steps - 1, layer=weakref.ref(layer))
    most, peak = policy.most_bytes, extension.peak_resident_bytes()
    # A peak from before may be one of memory that was kept.
    if most == 0 or peak > policy.before_bytes:
        above = max(peak // _ABOVE_PEAK, min(peak // _MESSAGES_OF_PEAK, policy.messages_bytes))
        most = max(most, peak + above)
    # Where the system does not say what is resident, there is no bound, and nothing is kept.
    kept = peak > 0 and extension.keep_freed_memory(most)
    return replace(policy, kept=kept, most_bytes=most, layer=weakref.ref(layer))


def pause() -> None:
    """Restores the C library's policy for what comes; what was kept stays, for the next patch."""
    global _policy
    if _policy.kept:
        with session.lock:
            native.extension.pause_keeping()
            _policy = replace(_policy, kept=None)


def give_back() -> None:
    """Restores the C library's policy, and gives back what was kept."""
    global _policy
    with session.lock:
        if _policy.kept is not False:
            native.extension.give_back_memory()
        _policy = _Policy()
