"""Messages that are the sources' features: copied, weighted, or minus the destinations' features."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.integrations import session
from onehop.integrations.pyg import machine
from onehop.integrations.pyg.admit import BOTH, GIVEN, Rows, Source, Target, Weight, is_feature, placement
from onehop.integrations.pyg.aggregation import DIFFERENCE, SOURCE, WEIGHTED, Aggregation
from onehop.integrations.pyg.call import Call, Plan
from onehop.integrations.pyg.edges import few
from onehop.integrations.pyg.leave import TOO_SMALL, Leave, need
from onehop.integrations.pyg.rules.table import rule
from onehop.ops.aggregate import reduce_rows


@rule("EGConv", needs=("aggregate",), listed=True, x=Rows(2, BOTH), symnorm_weight=GIVEN)
def eg(call: Call, x: Tensor, weight: Any) -> Plan:
    """EGConv over edges: one aggregation for each of its aggregators, and two for a variance."""
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

    special: dict[str, Callable[[], Tensor]] = {
        "symnorm": lambda: reduced("sum", x, weight),
        "var": variance,
        "std": lambda: variance().clamp(min=1e-5).sqrt(),
    }

    def run() -> Tensor:
        outs = [special[name]() if name in special else reduced(name) for name in names]
        return torch.stack(outs, dim=1) if len(outs) > 1 else outs[0]

    shown = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    return Plan("source", shown, graph, x, run, backend=call.backend)


def _aggregation(
    call: Call,
    form: str,
    x: Tensor,
    weight: Tensor | None = None,
    subtrahend: Tensor | None = None,
    weighted: bool = True,
) -> Aggregation | Plan:
    edges, reduce = call.edges, call.reduce
    if edges.is_few:
        if subtrahend is not None:
            raise Leave(TOO_SMALL)
        graph, run = few.aggregated(edges, x, weight if weighted else None, reduce)
        return Plan(form, reduce, graph, x, run)
    backend = machine.backend_of(call.layer, x, reduce) if session.now.machine else call.backend
    on_cpu = edges.is_cpu and x.is_cpu and (weight is None or weight.is_cpu) and subtrahend is None
    # On the CPU, there is always a backend.
    if backend or not on_cpu:
        placement(backend, edges, x, weight, subtrahend)
    graph, weight, scale, first = edges.factors(x, weight, reduce, weighted)
    if form == SOURCE and weight is not None:
        form = WEIGHTED
    if first:
        backend = session.now.backend
    return Aggregation(form, reduce, graph, x, weight, scale, subtrahend, backend, first)


sums = partial(rule, attends=False, divides=True, few=True)
_DIFFERENTLY = "source and destination features differ in width or dtype, or have three dimensions"


_COPIED = ("MessagePassing", "SAGEConv", "GINConv", "MFConv", "SignedConv")
_WEIGHTED = (
    *("GCNConv", "GraphConv", "SimpleConv", "APPNP", "TAGConv", "LGConv", "GCN2Conv", "MixHopConv"),
    *("GatedGraphConv", "WLConvContinuous", "LabelPropagation"),
)
_WEIGHTED_ALWAYS = ("SGConv", "SSGConv", "ARMAConv", "PDNConv", "ClusterGCNConv", "PANConv")


@sums(*_COPIED, name=SOURCE, x=Source())
def copied(call: Call, x: Tensor) -> Aggregation | Plan:
    """The message is the sources' features."""
    return _aggregation(call, SOURCE, x, weighted=False)


@sums(*_WEIGHTED, name=WEIGHTED, x=Source(), edge_weight=Weight())
@sums(*_WEIGHTED_ALWAYS, name=WEIGHTED, x=Source(), edge_weight=Weight(required=True))
@sums("ChebConv", name=WEIGHTED, x=Source(), norm=Weight(required=True))
@sums("SparseLinear", name=WEIGHTED, first="weight", weight=Source(), edge_weight=Weight())
def weighted(call: Call, x: Tensor, weight: Tensor | None) -> Aggregation | Plan:
    """The message is the sources' features times one number for each edge."""
    return _aggregation(call, WEIGHTED, x, weight)


@rule("LEConv", name=DIFFERENCE, attends=False, first="a", a=Source(), b=Target(), edge_weight=Weight())
def difference(call: Call, a: Tensor, b: Tensor, weight: Tensor | None) -> Aggregation | Plan:
    """The message is the sources' minus the destinations' features, times one number for each edge."""
    same = a.dim() == 2 and b.shape[1:] == a.shape[1:] and b.dtype is a.dtype
    need(same, _DIFFERENTLY)
    need(call.reduce in ("sum", "mean"), "differences are reduced by sum and mean alone")
    return _aggregation(call, DIFFERENCE, a, weight, b)
