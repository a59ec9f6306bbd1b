"""EGConv: several reductions of the sources' rows side by side, instead of its own ``aggregate``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.integrations.pyg.admit import BOTH, GIVEN, Rows, is_feature
from onehop.integrations.pyg.call import Call, Plan
from onehop.integrations.pyg.leave import need
from onehop.integrations.pyg.rules.table import rule
from onehop.ops.aggregate import reduce_rows


@rule("EGConv", needs=("aggregate",), listed=True, x=Rows(2, BOTH), symnorm_weight=GIVEN)
def eg(call: Call, x: Tensor, weight: Any) -> Plan:
    """EGConv over edges: an aggregation for each that it names, and two for a variance."""
    names = call.layer.aggregators
    need(names)
    if "symnorm" in names:
        fits = is_feature(call, weight, 1) and weight.shape == (call.edges.count,) and weight.dtype is x.dtype
        need(fits, "the weights of its normalisation are not one number an edge, of the features' dtype")
    graph = call.edges.graph()

    def reduced(reduce: str, rows: Tensor = x, weight: Tensor | None = None) -> Tensor:
        return reduce_rows(graph, rows, weight=weight, reduce=reduce, backend=call.backend)

    def variance() -> Tensor:
        mean = reduced("mean")
        return reduced("mean", x * x) - mean * mean

    made: dict[str, Callable[[], Tensor]] = {
        "symnorm": lambda: reduced("sum", x, weight),
        "var": variance,
        "std": lambda: variance().clamp(min=1e-5).sqrt(),
    }

    def run() -> Tensor:
        outs = [made[name]() if name in made else reduced(name) for name in names]
        return torch.stack(outs, dim=1) if len(outs) > 1 else outs[0]

    shown = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    return Plan("source", shown, graph, x, run, backend=call.backend)
