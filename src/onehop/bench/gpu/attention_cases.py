"""Calls of the attention kernels in the forms that the default plans give them."""

from typing import Any

import torch
from torch import Tensor

from onehop.backends.triton import TritonBackend
from onehop.graph import Graph
from onehop.kernels.attention_operands import AttentionOperands, Rule

_EDGE_COLUMNS = 8
RULES: tuple[Rule, ...] = ("gat", "gatv2", "dot")


def attention_operands(
    graph: Graph,
    rule: Rule,
    heads: int,
    width: int,
    dtype: torch.dtype,
    edge: str = "none",
    dropout: float = 0.0,
) -> AttentionOperands:
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
        keys = torch.ones(source[:2], dtype=acc) if gat else torch.ones(source, dtype=dtype)
    edges: Tensor | None = None
    if edge == "rows":
        edges = torch.ones((graph.num_edges, *target[1:])[: 2 if gat else 3], dtype=acc if gat else dtype)
    elif edge == "projected":
        edges = torch.ones(graph.num_edges, _EDGE_COLUMNS, dtype=dtype)
    return AttentionOperands(
        rule=rule,
        value=torch.ones(source, dtype=dtype),
        key=keys,
        query=torch.ones(target[:2], dtype=acc) if gat else torch.ones(target, dtype=dtype),
        att=torch.ones(heads, width, dtype=acc) if rule == "gatv2" else None,
        edge=edges,
        edge_weight=torch.ones(heads * width, _EDGE_COLUMNS, dtype=acc) if edge == "projected" else None,
        mask=None,
        factor=0.2,
        dropout=dropout,
        seed=7,
    )


def run_attention(graph: Graph, operands: AttentionOperands) -> Any:
    """Forward and backward, with every gradient there is."""
    backend = TritonBackend()
    out, softmax, _ = backend.attend(graph, operands, False)
    fields = (operands.value, operands.key, operands.query, operands.att, operands.edge, operands.edge_weight)
    wanted = [field is not None for field in fields]
    return backend.attend_grad(graph, operands, out, softmax, None, out, None, wanted)


def run_edge_softmax(graph: Graph, heads: int, dtype: torch.dtype) -> Any:
    """Forward and backward."""
    scores = torch.ones(graph.num_edges, heads, dtype=dtype)
    backend = TritonBackend()
    return backend.edge_softmax_grad(graph, backend.edge_softmax(graph, scores), scores)
