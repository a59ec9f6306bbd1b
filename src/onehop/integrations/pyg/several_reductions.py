"""EGConv: several reductions of the sources' rows side by side, in place of its own ``aggregate``."""

from collections.abc import Callable

import torch
from torch import Tensor

from onehop.integrations.pyg.attention_operands import dtypes_reason, is_feature
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, OUT_OF_RANGE, fits
from onehop.ops.aggregate import reduce_rows


def eg(call: Propagation) -> AttentionTask | str:
    """EGConv over edges: an aggregation for each that it names, and two for a variance."""
    layer, x, weight = call.layer, call.operands["x"], call.operands["symnorm_weight"]
    names = layer.aggregators
    if call.known is not None:
        return "edge_index is a sparse matrix, for which PyG has its own code"
    reason = dtypes_reason(call, 2, x)
    if reason is not None:
        return reason
    if not fits(call.sizes, 0, x.size(0)) or not fits(call.sizes, 1, x.size(0)) or not names:
        return LEFT_TO_PYG
    if "symnorm" in names and (
        not is_feature(call, weight, 1) or weight.shape != (call.num_edges,) or weight.dtype is not x.dtype
    ):
        return "the weights of its normalisation are not one number an edge, of the features' dtype"
    graph = call.graph(x.size(0))
    if graph is None:
        return OUT_OF_RANGE

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
    return AttentionTask("source", shown, graph, x, run)
