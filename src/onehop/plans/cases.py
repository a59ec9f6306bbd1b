"""The case of a tuned plan: the key by which the plan is looked up.

On a CPU, a case has exactly the measured conditions: statistics of the graph (:func:`graph_key`), operation,
direction, width, dtype, number of threads and instruction set. On a GPU, statistics are reduced to classes
(:func:`shape_class`), because GPU performance depends on the magnitude of sizes and degrees and little on
their last digit. A case includes neither the graph's edges (the same graph loaded by another program has the
same statistics) nor the values of features and weights, on which no kernel's time depends. The file belongs
to one machine (:mod:`onehop.plans.store`).
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from onehop import native
from onehop.errors import ArgumentError, check_choice
from onehop.graph import Graph

# A width that was not tuned uses the plan of the nearest tuned width, up to this ratio.
NEAR_WIDTH = 1.25

OPERATIONS = ("sum", "extremum", "extremum_grad", "sddmm", "edge_softmax", "attention")
# On GPUs, each rule of attention has its own kernels, and its gradient has its own plans.
GPU_OPERATIONS = (*OPERATIONS, "attention_grad", "gat", "gat_grad", "gatv2", "gatv2_grad")

# Quantiles of the rows' degrees: median, nine tenths, maximum.
_SHARES = (0.5, 0.9, 1.0)

Sizes = tuple[int, int, int]
"""(num_src, num_dst, num_edges), exact or in classes. Most graphs are rejected by these alone."""


@dataclass(frozen=True, slots=True)
class _Case:
    """The fields that cases of all machines have.

    Attributes:
        graph: Statistics of the graph, from :func:`graph_key` or :func:`shape_class`.
        operation: One of ``operations``; "sum" is also used for mean, "extremum" for max and min.
        transposed: Whether every edge is reversed, as in backward passes of sums and extrema.
        width: Number of columns of all heads together.
    """

    operations: ClassVar[tuple[str, ...]] = OPERATIONS

    graph: str
    operation: str
    transposed: bool
    width: int

    def __post_init__(self) -> None:
        """Check the fields, which may be wrong in a file."""
        check_choice("operation", self.operation, self.operations)
        for field in dataclasses.fields(self):
            kind: Any = field.type
            got = type(getattr(self, field.name))
            if got is not kind:
                raise ArgumentError(f"{field.name}: expected {kind.__name__}, got {got.__name__}.")
        sizes_of(self.graph)

    @property
    def sizes(self) -> Sizes:
        """Sizes of the graph, in classes if the statistics are in classes."""
        return sizes_of(self.graph)

    @property
    def backward(self) -> bool:
        """Return whether the case belongs to a backward pass."""
        return self.transposed


@dataclass(frozen=True, slots=True)
class PlanCase(_Case):
    """The case of a plan for the CPU.

    Attributes:
        dtype: Dtype of the features, for example "float32".
        threads: torch's number of threads.
        isa: Instruction set of the kernels.
    """

    dtype: str
    threads: int
    isa: str


@dataclass(frozen=True, slots=True)
class GpuCase(_Case):
    """The case of a plan for a GPU.

    Attributes:
        heads: Number of heads that share the columns.
        dtype: Dtype of the features, for example "float32".
        device: The GPU's name.
    """

    operations: ClassVar[tuple[str, ...]] = GPU_OPERATIONS

    heads: int
    dtype: str
    device: str

    @property
    def backward(self) -> bool:
        """Return whether the case belongs to a backward pass."""
        return self.transposed or self.operation.endswith("_grad")


def distance(case: PlanCase | GpuCase, wanted: PlanCase | GpuCase) -> float | None:
    """Return the ratio of a plan's width to the requested one; None if the cases differ in anything else."""
    if type(case) is not type(wanted) or dataclasses.replace(case, width=wanted.width) != wanted:
        return None
    ratio = max(case.width, wanted.width) / max(min(case.width, wanted.width), 1)
    return ratio if ratio <= NEAR_WIDTH else None


def graph_key(graph: Graph) -> str:
    """Return the statistics of a graph as the key of tuned plans; computes the statistics if needed."""
    s = graph.statistics
    degrees = "-".join(map(str, s.degree_quantiles))
    return (
        f"{s.num_src}x{s.num_dst} edges {s.num_edges} degrees {degrees} empty {s.empty_rows} "
        f"loops {s.self_loops} span {s.mean_span:.2f}"
    )


def shape_class(graph: Graph) -> str:
    """Return a graph's sizes and degree quantiles (half, nine tenths, all rows), rounded up to powers of two.

    The span, from which an order may gain, is rounded to the nearest power of two. The graph's statistics are
    computed if needed.
    """
    s = graph.statistics
    num_src, num_dst, edges = size_class(graph)
    quantiles = dict(zip(s.QUANTILES, s.degree_quantiles, strict=True))
    degrees = "-".join(str(_class(quantiles[share])) for share in _SHARES)
    span = 2.0 ** round(math.log2(s.mean_span)) if s.mean_span > 0 else 0.0
    return f"{num_src}x{num_dst} edges {edges} degrees {degrees} span {span:g}"


def size_class(graph: Graph) -> Sizes:
    """Return the sizes in :func:`shape_class`, without computing statistics."""
    return _class(graph.num_src), _class(graph.num_dst), _class(graph.num_edges)


def case_of(graph: Graph, operation: str, transposed: bool, width: int, dtype: torch.dtype) -> PlanCase:
    """Return the case of a CPU plan in the current state of this process."""
    isa = native.extension.selected_isa()
    return PlanCase(graph_key(graph), operation, transposed, width, _name(dtype), native.threads(), isa)


def gpu_case_of(
    graph: Graph, operation: str, transposed: bool, width: int, heads: int, dtype: torch.dtype, device: str
) -> GpuCase:
    """Return the case of a plan for the GPU of this name."""
    return GpuCase(shape_class(graph), operation, transposed, width, heads, _name(dtype), device)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _class(number: int) -> int:
    return 1 << (number - 1).bit_length() if number > 0 else 0


def sizes_of(key: str) -> Sizes:
    """Return (num_src, num_dst, num_edges) from a key of :func:`graph_key` or :func:`shape_class`."""
    try:
        counts, edges = key.split(" degrees ")[0].split(" edges ")
        num_src, num_dst = counts.split("x")
        return int(num_src), int(num_dst), int(edges)
    except ValueError as error:
        raise ArgumentError(f"graph: {key!r} is not a key of a graph ({error}).") from error
