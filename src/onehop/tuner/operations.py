"""The operations that can be tuned; each is a call on random operands with the plan as its argument."""

import functools
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from onehop.backends.cpu import CpuBackend
from onehop.calls import SCORES
from onehop.errors import check_choice
from onehop.tuner import calls
from onehop.tuner.calls import Maker, Site

Reduction = Literal["sum", "mean", "max", "min"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
# Values of ``op`` in `tune`.
CpuOp = Literal["aggregate", "sddmm", "edge_softmax", "attention"]
OPS: tuple[CpuOp, ...] = get_args(CpuOp)
Op = CpuOp | Literal["gat", "gatv2"]
GPU_OPS: tuple[Op, ...] = (*OPS, "gat", "gatv2")
FIELDS = (
    "prefetch", "prefetch_hint", "edges_per_item", "column_tile", "register_block", "nontemporal", "threads",
    "ordering", "storage",
)  # fmt: skip
_GPU_FIELDS = (
    "ordering", "short_edges", "rows_per_program", "block_edges", "block_features", "num_warps", "num_stages",
    "split_edges",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of one backend: the operators that can be tuned, and the plan fields that each kernel uses.

    Attributes:
        ops: The operators that can be tuned.
        fields: All fields of a plan; the kernel of sums uses all of them.
        extremum: The fields that max and min use.
        edge_softmax: The fields that an edge softmax uses.
        others: The fields that all other kernels use.
        grads_of_attention: Whether gradients of attention have their own plan, used for both of their sweeps;
            if not, they run with the plan of the forward pass.
    """

    ops: tuple[str, ...]
    fields: tuple[str, ...]
    extremum: tuple[str, ...]
    edge_softmax: tuple[str, ...]
    others: tuple[str, ...]
    grads_of_attention: bool


CPU = Kernels(
    ops=OPS,
    fields=FIELDS,
    extremum=tuple(name for name in FIELDS if name not in ("prefetch_hint", "storage")),
    edge_softmax=("edges_per_item", "threads"),
    others=("prefetch", "edges_per_item", "threads"),
    grads_of_attention=False,
)
GPU = Kernels(
    ops=GPU_OPS,
    # The variant comes last, because torch's variant uses none of the other fields.
    fields=(*_GPU_FIELDS, "variant"),
    extremum=_GPU_FIELDS,
    edge_softmax=tuple(name for name in _GPU_FIELDS if name != "num_stages"),
    others=_GPU_FIELDS,
    grads_of_attention=True,
)
# Each plan has one backend, which keeps the calls that it has prepared; so measurements are of warm calls.
_HERE = Site(functools.lru_cache(maxsize=64)(CpuBackend), torch.device("cpu"))


@dataclass(frozen=True, slots=True)
class Operation:
    """One direction of one operation.

    Attributes:
        name: One of :data:`onehop.plans.cases.OPERATIONS`, or a name of a GPU operation.
        transposed: Whether rows are sources.
        axes: The fields of a plan that its kernel uses.
        reads_two: Whether each edge reads a row from two tensors.
        make: Draws operands for a graph, a width and a dtype; returns the call.
    """

    name: str
    transposed: bool
    axes: tuple[str, ...]
    reads_two: bool
    make: Maker


def operations(
    op: str, reduce: str, backward: bool, kernels: Kernels = CPU, site: Site = _HERE
) -> tuple[Operation, ...]:
    """Return the directions of ``op`` to tune, at a site with these kernels, forward first.

    Raises:
        ArgumentError: ``op`` or ``reduce`` is unknown.
    """
    check_choice("op", op, kernels.ops)
    check_choice("reduce", reduce, REDUCTIONS)
    gradient = None
    if op == "sddmm":
        forward = Operation("sddmm", False, kernels.others, False, calls.sddmm(site))
    elif op == "edge_softmax":
        forward = Operation("edge_softmax", False, kernels.edge_softmax, False, calls.edge_softmax(site))
    elif op in SCORES:
        also = backward and not kernels.grads_of_attention
        once = calls.attention(site, SCORES[op].rule, forward=True, backward=also)
        forward = Operation(op, False, kernels.others, True, once)
        if kernels.grads_of_attention:
            again = calls.attention(site, SCORES[op].rule, forward=False, backward=True)
            gradient = Operation(f"{op}_grad", False, kernels.others, True, again)
    elif reduce in ("sum", "mean"):
        mean = reduce == "mean"
        forward = Operation("sum", False, kernels.fields, False, calls.summed(site, mean, False))
        gradient = Operation("sum", True, kernels.fields, False, calls.summed(site, mean, True))
    else:
        once = calls.extremum(site, reduce, backward)
        forward = Operation("extremum", False, kernels.extremum, False, once)
        gradient = Operation("extremum_grad", True, kernels.others, True, calls.extremum_grad(site, reduce))
    return (forward, gradient) if backward and gradient is not None else (forward,)
