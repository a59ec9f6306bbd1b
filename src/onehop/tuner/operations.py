"""The operations that can be tuned on the CPU: each a call on random operands, with the plan given."""

import functools
from dataclasses import dataclass

import torch

from onehop.backends.cpu import CpuBackend
from onehop.errors import ArgumentError
from onehop.tuner import calls
from onehop.tuner.calls import Maker, Site

REDUCTIONS = ("sum", "mean", "max", "min")
# Values of ``op`` in `tune`.
OPS = ("aggregate", "sddmm", "edge_softmax", "attention")
FIELDS = (
    "prefetch",
    "prefetch_hint",
    "edges_per_item",
    "column_tile",
    "register_block",
    "nontemporal",
    "threads",
    "ordering",
    "storage",
)
# The fields among these that the kernels of max and min use.
_EXTREMUM_FIELDS = tuple(name for name in FIELDS if name not in ("prefetch_hint", "storage"))


# One backend a plan, which keeps the calls that it prepares: what is measured is a warm call.
_SITE = Site(functools.lru_cache(maxsize=64)(CpuBackend), torch.device("cpu"))


@dataclass(frozen=True, slots=True)
class Operation:
    """One direction of one operation.

    Attributes:
        name: One of :data:`onehop.plans.cases.OPERATIONS`.
        transposed: Whether rows are sources.
        axes: The fields of a plan that its kernel uses.
        reads_two: Whether each edge reads a row of two tensors.
        make: Draws operands for a graph, a width and a dtype; returns the call.
    """

    name: str
    transposed: bool
    axes: tuple[str, ...]
    reads_two: bool
    make: Maker


def operations(op: str, reduce: str, backward: bool) -> tuple[Operation, ...]:
    """The directions of tuning ``op``, forward first.

    Raises:
        ArgumentError: ``op`` or ``reduce`` is unknown.
    """
    check(op, OPS, reduce)
    axes: tuple[str, ...] = ("prefetch", "edges_per_item", "threads")
    if op == "sddmm":
        return (Operation("sddmm", False, axes, False, calls.sddmm(_SITE)),)
    if op == "edge_softmax":
        axes = ("edges_per_item", "threads")
        return (Operation("edge_softmax", False, axes, False, calls.edge_softmax(_SITE)),)
    if op == "attention":
        both = calls.attention(_SITE, "dot", forward=True, backward=backward)
        return (Operation("attention", False, axes, True, both),)
    if reduce in ("sum", "mean"):
        mean = reduce == "mean"
        forward = Operation("sum", False, FIELDS, False, calls.summed(_SITE, mean, False))
        gradient = Operation("sum", True, FIELDS, False, calls.summed(_SITE, mean, True))
    else:
        maker = calls.extremum(_SITE, reduce, backward)
        forward = Operation("extremum", False, _EXTREMUM_FIELDS, False, maker)
        gradient = Operation("extremum_grad", True, axes, True, calls.extremum_grad(_SITE, reduce))
    return (forward, gradient) if backward else (forward,)


def check(op: str, ops: tuple[str, ...], reduce: str) -> None:
    """Raises unless ``op`` is one of ``ops`` and ``reduce`` is a reduction."""
    if op not in ops:
        raise ArgumentError(f"op: expected one of {', '.join(ops)}, got {op!r}.")
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce: expected one of {', '.join(REDUCTIONS)}, got {reduce!r}.")
