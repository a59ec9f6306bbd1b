"""The host as a baseline: torch's own sums measured on this machine, and sums in float64."""

import statistics
import time
import warnings

import torch
from torch import Tensor

from onehop.calls import Aggregate, on
from onehop.graph import Graph
from onehop.kernels.cpu.aggregate import PreparedAggregate
from onehop.plans import CpuPlan


def measured_ns(graph: Graph, x: Tensor, weight: Tensor | None = None, rounds: int = 3) -> float:
    """Measure the median time of torch's own sparse product here, in the dtype of x, after one warm-up.

    Floats use compressed rows; for integers, torch only has a product of a COO matrix. ``x``: [num_src, F];
    ``weight``: [E], in the caller's edge order, or None for ones.
    """
    values = torch.ones(graph.num_edges, dtype=x.dtype, device="cpu")
    if weight is not None:
        values = weight.to(x.dtype) if graph.perm is None else weight.to(x.dtype)[graph.perm.long()]
    size = (graph.num_dst, graph.num_src)
    if x.dtype.is_floating_point:
        # Use int32 if possible: torch's product is faster with it.
        rowptr = graph.rowptr.int() if graph.num_edges < 2**31 else graph.rowptr
        col = graph.col if rowptr.dtype == torch.int32 else graph.col.long()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
            matrix = torch.sparse_csr_tensor(
                rowptr, col, values, size, check_invariants=False, device=values.device
            )
    else:
        row = torch.repeat_interleave(torch.arange(graph.num_dst, device="cpu"), graph.in_degrees)
        indices = torch.stack([row, graph.col.long()])
        matrix = torch.sparse_coo_tensor(
            indices, values, size, check_invariants=False, is_coalesced=True, device=values.device
        )
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter_ns()
        torch.sparse.mm(matrix, x)
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times[1:])


def largest_error(
    graph: Graph, x: Tensor, weight: Tensor | None, reduce: str, out: Tensor, block: int = 32
) -> float:
    """Return the largest difference between a result [num_dst, F] and the sum (or mean) in float64.

    ``x``: [num_src, F]; ``weight``: [E], in the caller's edge order, or None for ones; ``block`` is the
    number of columns that are compared at a time.
    """
    worst = 0.0
    values = None if weight is None else weight.double()
    for begin in range(0, x.size(1), block):
        part = x[:, begin : begin + block].double()
        call = on(graph, Aggregate, x=part, weight=values, mean=reduce == "mean")
        exact = PreparedAggregate(graph, CpuPlan(), call).run(call)
        if exact.numel():
            worst = max(worst, float((exact - out[:, begin : begin + block].double()).abs().max()))
    return worst
