"""A test of a generated kernel against the reference, through the whole path of an operator."""

import dataclasses

import torch
from torch import Tensor

from onehop.backends.cpu import CpuBackend
from onehop.backends.reference import ReferenceBackend
from onehop.calls import Aggregate, Extremum, on
from onehop.graph import Graph
from onehop.plans import CpuPlan

_NODES, _HUB, _EDGES = 40, 300, 500
# Relative to the results' magnitude: sums of some hundred numbers, in float32 at least.
_TOLERANCE = 1e-5


def wrong_result(plan: CpuPlan, kind: str, width: int, dtype: torch.dtype) -> str | None:
    """Return how the plan's kernel differs from the reference, or None if it does not.

    The graph has a hub that is split, empty rows, and repeated edges; features have a NaN.

    Args:
        plan: The plan that names the kernel.
        kind: "sum" or "extremum".
        width: Columns.
        dtype: Dtype of the features, as the kernel reads them.
    """
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, _NODES // 2, (2, _EDGES), generator=generator, device="cpu")
    edges[1, :_HUB] = 3
    graph = Graph.from_edge_index(edges, num_nodes=_NODES)
    x = torch.randn(_NODES, width, generator=generator, device="cpu").to(dtype)
    acc = torch.float64 if dtype == torch.float64 else torch.float32
    weight, scale = (
        torch.rand(n, generator=generator, dtype=acc, device="cpu") + 0.5 for n in (_EDGES, _NODES)
    )
    # Small items split the hub; no order, since orders are made for the graph that is tuned.
    small = dataclasses.replace(plan, edges_per_item=64, ordering="none", storage="same")
    ours, theirs = CpuBackend(small), ReferenceBackend()
    if kind == "sum":
        for what, call in {
            "a sum": on(graph, Aggregate, x=x, widen=True),
            "a weighted sum": on(graph, Aggregate, x=x, weight=weight, widen=True),
            "a scaled sum": on(graph, Aggregate, x=x, src_scale=scale, dst_scale=scale, widen=True),
            "a mean": on(graph, Aggregate, x=x, mean=True, widen=True),
        }.items():
            if _differ(ours.run(graph, call), theirs.run(graph, call)):
                return what
        return None
    x[5, width // 2] = float("nan")
    for reduce in ("max", "min"):
        for factor in (None, weight):
            for ties in (False, True):
                extremum = on(graph, Extremum, x=x, reduce=reduce, weight=factor, widen=True, with_ties=ties)
                found, exact = (each.run(graph, extremum) for each in (ours, theirs))
                if any(_differ(a, b) for a, b in zip(found, exact, strict=True)):
                    return f"a{'' if factor is None else ' weighted'} {reduce}"
    return None


def _differ(found: Tensor, exact: Tensor) -> bool:
    tolerance = _TOLERANCE * (1 + exact.nan_to_num().abs().max().item()) if exact.numel() else 0.0
    return not torch.allclose(found, exact.to(found.dtype), rtol=0, atol=tolerance, equal_nan=True)
