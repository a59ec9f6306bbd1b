"""What can be tuned: each operation as a call on random operands, with the plan given."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.backends.cpu import CpuBackend
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.kernels.attention_operands import AttentionOperands
from onehop.plans import CpuPlan

REDUCTIONS = ("sum", "mean", "max", "min")
# What `tune` calls them.
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
    "index",
    "hub_cache",
    "storage",
)
# Of these, what the kernels of max and min heed.
_EXTREMUM_FIELDS = tuple(name for name in FIELDS if name not in ("prefetch_hint", "storage", "hub_cache"))


@dataclass(frozen=True, slots=True)
class Operation:
    """One direction of one operation.

    Attributes:
        name: Of :data:`onehop.plans.tuned.OPERATIONS`.
        transposed: Whether rows are sources.
        axes: The fields of a plan that its kernel heeds.
        reads_two: Whether each edge reads a row of two tensors.
        make: Draws operands for a graph, a width and a dtype; returns the call.
    """

    name: str
    transposed: bool
    axes: tuple[str, ...]
    reads_two: bool
    make: Callable[[Graph, int, torch.dtype], Callable[[CpuPlan], Tensor]]


def operations(op: str, reduce: str, backward: bool) -> tuple[Operation, ...]:
    """The directions that tuning ``op`` is about, forward first.

    Raises:
        ArgumentError: ``op`` or ``reduce`` is unknown.
    """
    if op not in OPS:
        raise ArgumentError(f"op: expected one of {', '.join(OPS)}, got {op!r}.")
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce: expected one of {', '.join(REDUCTIONS)}, got {reduce!r}.")
    if op == "sddmm":
        return (Operation("sddmm", False, ("prefetch", "edges_per_item", "threads"), False, _sddmm),)
    if op == "edge_softmax":
        return (Operation("edge_softmax", False, ("edges_per_item", "threads"), False, _edge_softmax),)
    if op == "attention":
        axes = ("prefetch", "edges_per_item", "threads")
        return (Operation("attention", False, axes, True, _attention(backward)),)
    if reduce in ("sum", "mean"):
        mean = reduce == "mean"
        forward = Operation("sum", False, FIELDS, False, _sum(mean, False))
        gradient = Operation("sum", True, FIELDS, False, _sum(mean, True))
    else:
        forward = Operation("extremum", False, _EXTREMUM_FIELDS, False, _extremum(reduce, backward))
        axes = ("prefetch", "edges_per_item", "threads")
        gradient = Operation("extremum_grad", True, axes, True, _extremum_grad(reduce))
    return (forward, gradient) if backward else (forward,)


def _random(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(0)).to(dtype)


def _sum(mean: bool, transposed: bool) -> Callable[[Graph, int, torch.dtype], Callable[[CpuPlan], Tensor]]:
    def make(graph: Graph, width: int, dtype: torch.dtype) -> Callable[[CpuPlan], Tensor]:
        x = _random(graph.num_dst if transposed else graph.num_src, width, dtype)
        return lambda plan: CpuBackend(plan).aggregate(graph, transposed, x, None, None, None, mean, False)

    return make


def _extremum(
    reduce: str, with_ties: bool
) -> Callable[[Graph, int, torch.dtype], Callable[[CpuPlan], Tensor]]:
    def make(graph: Graph, width: int, dtype: torch.dtype) -> Callable[[CpuPlan], Tensor]:
        x = _random(graph.num_src, width, dtype)
        return lambda plan: CpuBackend(plan).extremum(graph, x, None, reduce, False, with_ties)[0]

    return make


def _extremum_grad(reduce: str) -> Callable[[Graph, int, torch.dtype], Callable[[CpuPlan], Tensor]]:
    def make(graph: Graph, width: int, dtype: torch.dtype) -> Callable[[CpuPlan], Tensor]:
        x, grad = _random(graph.num_src, width, dtype), _random(graph.num_dst, width, dtype)
        out, ties = CpuBackend().extremum(graph, x, None, reduce, False, True)

        def call(plan: CpuPlan) -> Tensor:
            return CpuBackend(plan).extremum_grad(graph, grad, x, None, out, ties, True, False)[0]

        return call

    return make


def _sddmm(graph: Graph, width: int, dtype: torch.dtype) -> Callable[[CpuPlan], Tensor]:
    dst, src = (_random(rows, width, dtype).unsqueeze(1) for rows in (graph.num_dst, graph.num_src))
    return lambda plan: CpuBackend(plan).sddmm(graph, dst, src, False, False)


def _edge_softmax(graph: Graph, width: int, dtype: torch.dtype) -> Callable[[CpuPlan], Tensor]:
    scores = _random(graph.num_edges, width, dtype)
    return lambda plan: CpuBackend(plan).edge_softmax(graph, scores)


def _attention(backward: bool) -> Callable[[Graph, int, torch.dtype], Callable[[CpuPlan], Tensor]]:
    """The scores of graph transformers, with one head; both sweeps of the gradient use the same plan."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Callable[[CpuPlan], Tensor]:
        key, value = (_random(graph.num_src, width, dtype).unsqueeze(1) for _ in range(2))
        query, grad = (_random(graph.num_dst, width, dtype).unsqueeze(1) for _ in range(2))
        operands = AttentionOperands(
            "dot", value, key, query, None, None, None, None, width**-0.5, dropout=0.0, seed=0
        )
        wanted = (True, True, True, False, False, False)

        def call(plan: CpuPlan) -> Tensor:
            backend = CpuBackend(plan)
            out, softmax, _ = backend.attend(graph, operands, False)
            if backward:
                backend.attend_grad(graph, operands, out, softmax, None, grad, None, wanted)
            return out

        return call

    return make
