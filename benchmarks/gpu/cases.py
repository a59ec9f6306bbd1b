"""Calls of every GPU kernel in the forms that the default plans give them, for the compilers to be tried on.

The graphs are small; what is compiled depends on them through the plan alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.backends.triton import TritonBackend
from onehop.calls import (
    Aggregate,
    ArgExtremum,
    ArgExtremumGrad,
    Attention,
    EdgeSoftmax,
    EdgeSoftmaxGrad,
    Extremum,
    ExtremumGrad,
    Rule,
    Sddmm,
    attention_grad,
    on,
)
from onehop.graph import Graph

Call = Callable[[], Any]

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Those of which more forms are compiled.
_MAIN = (torch.float32, torch.bfloat16)
_RULES: tuple[Rule, ...] = ("gat", "gatv2", "dot")
_HEADS, _EDGE_COLUMNS = 4, 8
_NODES = 40
# Longer than default plans let a row be, so that it is cut, in both directions.
_HUB = 600
# So long that its pieces are merged in two levels.
DEEP_HUB = 20_000


def _accumulated(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def graph_of_degree(degree: int, hub_edges: int = _HUB) -> Graph:
    """A graph of at least that mean degree, but for a hub of so many edges."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, _NODES, (2, _NODES * degree), generator=generator)
    spokes = torch.randint(0, _NODES, (hub_edges,), generator=generator)
    hub = torch.stack([spokes, torch.zeros_like(spokes)])
    return Graph.from_edge_index(torch.cat([edges, hub, hub.flip(0)], 1), _NODES)


def aggregate_calls(graph: Graph, width: int, dtype: torch.dtype) -> list[Call]:
    """Sums, plain and with all there is; max; and their gradients."""
    run, acc = TritonBackend().run, _accumulated(dtype)
    x = torch.ones(graph.num_src, width, dtype=dtype)
    weight, scale = torch.ones(graph.num_edges, dtype=acc), torch.ones(_NODES, dtype=acc)
    share = torch.ones(graph.num_dst, width, dtype=acc)
    heads = x.view(_NODES, _HEADS, -1)
    with_all = {"weight": weight, "src_scale": scale, "dst_scale": scale, "transposed": True, "widen": True}
    extremum = on(graph, Extremum, x=x, reduce="max", weight=weight, with_ties=True)
    calls = (
        on(graph, Aggregate, x=x, **with_all),
        extremum,
        ExtremumGrad(call=extremum, extremum=x, ties=share, grad=share, wanted=[True, True]),
        on(graph, Sddmm, dst=heads, src=heads, widen=True),
    )
    return [
        *sum_calls(graph, width, dtype),
        *(partial(run, graph, call) for call in calls),
        *winner_calls(graph, width, dtype),
    ]


def winner_calls(graph: Graph, width: int, dtype: torch.dtype) -> list[Call]:
    """Max whose gradient goes to one edge, with a weight for every head; there are none of 16 bits."""
    if dtype.itemsize < 4:
        return []
    x = torch.ones(graph.num_src, width, dtype=dtype)
    weight = torch.ones(graph.num_edges, _HEADS, dtype=dtype)
    call = on(graph, ArgExtremum, x=x, reduce="max", weight=weight)
    winner = torch.zeros(graph.num_dst, width, dtype=torch.int32)
    grad = ArgExtremumGrad(call=call, winner=winner, grad=x, wanted=[True, True])
    run = TritonBackend().run
    return [partial(run, graph, each) for each in (call, grad, on(graph, ArgExtremum, x=x, reduce="max"))]


def sum_calls(graph: Graph, width: int, dtype: torch.dtype) -> list[Call]:
    """The plain sum."""
    x = torch.ones(graph.num_src, width, dtype=dtype)
    return [partial(TritonBackend().run, graph, on(graph, Aggregate, x=x))]


def graph_of_all_lengths() -> Graph:
    """A graph with rows of one edge, rows of dozens and one that is cut, in both directions."""
    node = torch.arange(_NODES)
    to_hub = torch.stack([torch.arange(_HUB) % (_NODES // 2), torch.zeros(_HUB, dtype=torch.long)])
    ring = torch.stack([node, node.roll(1)])
    return Graph.from_edge_index(torch.cat([ring, to_hub, to_hub.flip(0)], 1), _NODES)


def attention_operands(
    graph: Graph,
    rule: Rule,
    heads: int,
    width: int,
    dtype: torch.dtype,
    edge: str = "none",
    dropout: float = 0.0,
) -> Attention:
    """Ones of the right shapes.

    Args:
        graph: The graph.
        rule: How scores are made.
        heads: H.
        width: D.
        dtype: Of the features.
        edge: "none", "rows" ([E, H, D], or for "gat" [E, H]) or "projected" (from 8 columns).
        dropout: Probability of dropping a weight.
    """
    acc, gat, nodes = _accumulated(dtype), rule == "gat", (graph.num_src, graph.num_dst)
    sources, targets = (torch.ones(count, heads, width, dtype=dtype) for count in nodes)
    source_scores, target_scores = (torch.ones(count, heads, dtype=acc) for count in nodes)
    edges: Tensor | None = None
    if edge == "rows" and gat:
        edges = torch.ones(graph.num_edges, heads, dtype=acc)
    elif edge == "rows":
        edges = torch.ones(graph.num_edges, heads, width, dtype=dtype)
    elif edge == "projected":
        edges = torch.ones(graph.num_edges, _EDGE_COLUMNS, dtype=dtype)
    return on(
        graph,
        Attention,
        rule=rule,
        value=sources,
        key={"gat": source_scores, "gatv2": None, "dot": torch.ones_like(sources)}[rule],
        query=target_scores if gat else targets,
        att=torch.ones(heads, width, dtype=acc) if rule == "gatv2" else None,
        edge=edges,
        edge_weight=torch.ones(heads * width, _EDGE_COLUMNS, dtype=acc) if edge == "projected" else None,
        mask=None,
        factor=0.2,
        dropout=dropout,
        seeds=torch.tensor([7]),
    )


def _run_attention(graph: Graph, operands: Attention, with_weights: bool) -> Any:
    """Forward and backward, with every gradient there is."""
    backend = TritonBackend()
    call = operands._replace(with_weights=with_weights)
    results = backend.run(graph, call)
    given = results[2] if with_weights else None
    return backend.run(graph, attention_grad(call, results, results[0], grad_weights=given))


def _run_edge_softmax(graph: Graph, heads: int, dtype: torch.dtype) -> Any:
    """Forward and backward."""
    scores = torch.ones(graph.num_edges, heads, dtype=dtype)
    backend = TritonBackend()
    call = on(graph, EdgeSoftmax, scores=scores)
    grad = EdgeSoftmaxGrad(
        softmax=backend.run(graph, call),
        grad=scores,
        graph=call.graph,
        sources=call.sources,
        rows=call.rows,
        backend="",
    )
    return backend.run(graph, grad)


def attention_calls(dtype: torch.dtype) -> list[Call]:
    """Four heads of 64: all rules for the main dtypes, and in float32 all that edges bring."""
    graph = graph_of_all_lengths()
    main = dtype in _MAIN
    forms = [(rule, 4, 64, "none") for rule in (_RULES if main else ("gatv2",))]
    if dtype == torch.float32:
        forms += [("gat", 4, 64, "rows"), ("gatv2", 4, 64, "rows"), ("dot", 4, 64, "projected")]
    if dtype == torch.bfloat16:
        forms += [("gatv2", 2, 32, "none"), ("gatv2", 4, 64, "rows")]
    found: list[Call] = [partial(_run_edge_softmax, graph, 4, dtype)] if main else []
    for rule, heads, width, edge in forms:
        everything = edge != "none"
        operands = attention_operands(graph, rule, heads, width, dtype, edge, 0.3 if everything else 0.0)
        found.append(partial(_run_attention, graph, operands, everything))
    return found


def deep_calls(dtype: torch.dtype) -> list[Call]:
    """Attention, sums and max where a row has so many pieces that they are merged in levels."""
    graph, run, width = graph_of_degree(8, DEEP_HUB), TritonBackend().run, 256
    found: list[Any] = [attention_operands(graph, "gatv2", _HEADS, width // _HEADS, dtype)]
    if dtype in _MAIN:
        x = torch.ones(graph.num_src, width, dtype=dtype)
        found += [on(graph, Aggregate, x=x), on(graph, Extremum, x=x, reduce="max", with_ties=True)]
        if dtype.itemsize >= 4:
            found.append(on(graph, ArgExtremum, x=x, reduce="max"))
    return [partial(run, graph, call) for call in found]


def calls(dtype: torch.dtype) -> list[Call]:
    """Everything for a dtype: all kernels at width 64, sums at other widths and where rows are long."""
    sparse, dense = graph_of_degree(8), graph_of_degree(80)
    found = aggregate_calls(sparse, 64, dtype)
    if dtype in _MAIN:
        found += (
            aggregate_calls(dense, 256, dtype) + sum_calls(sparse, 33, dtype) + sum_calls(sparse, 32, dtype)
        )
    return found + deep_calls(dtype) + attention_calls(dtype)
