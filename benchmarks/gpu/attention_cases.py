"""Calls of the attention kernels in the forms that the default plans give them; see :mod:`.cases`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.backends.triton import TritonBackend
from onehop.calls import Attention, EdgeSoftmax, EdgeSoftmaxGrad, Rule, attention_grad, on
from onehop.graph import Graph

Call = Callable[[], Any]

_EDGE_COLUMNS = 8
_RULES: tuple[Rule, ...] = ("gat", "gatv2", "dot")
_NODES = 40
# Longer than default plans let a row be, so that it is cut, in both directions.
_HUB = 600


def graph_of_all_lengths() -> Graph:
    """A graph with rows of one edge, rows of dozens and one that is cut, in both directions."""
    node = torch.arange(_NODES, device="cpu")
    some, hub = (
        torch.arange(_HUB, device="cpu") % (_NODES // 2),
        torch.zeros(_HUB, dtype=torch.long, device="cpu"),
    )
    to_hub = torch.stack([some, hub])
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
    acc = torch.float64 if dtype == torch.float64 else torch.float32
    source, target = (graph.num_src, heads, width), (graph.num_dst, heads, width)
    gat = rule == "gat"
    keys: Tensor | None = None
    if rule != "gatv2":
        keys = (
            torch.ones(source[:2], dtype=acc, device="cpu")
            if gat
            else torch.ones(source, dtype=dtype, device="cpu")
        )
    edges: Tensor | None = None
    if edge == "rows":
        edges = torch.ones(
            (graph.num_edges, *target[1:])[: 2 if gat else 3], dtype=acc if gat else dtype, device="cpu"
        )
    elif edge == "projected":
        edges = torch.ones(graph.num_edges, _EDGE_COLUMNS, dtype=dtype, device="cpu")
    return on(
        graph,
        Attention,
        rule=rule,
        value=torch.ones(source, dtype=dtype, device="cpu"),
        key=keys,
        query=torch.ones(target[:2], dtype=acc, device="cpu")
        if gat
        else torch.ones(target, dtype=dtype, device="cpu"),
        att=torch.ones(heads, width, dtype=acc, device="cpu") if rule == "gatv2" else None,
        edge=edges,
        edge_weight=torch.ones(heads * width, _EDGE_COLUMNS, dtype=acc, device="cpu")
        if edge == "projected"
        else None,
        mask=None,
        factor=0.2,
        dropout=dropout,
        seeds=torch.tensor([7], device="cpu"),
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
    scores = torch.ones(graph.num_edges, heads, dtype=dtype, device="cpu")
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
    main = dtype in (torch.float32, torch.bfloat16)
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
