"""Operators and forms that are checked on a GPU beside those that are measured."""

from collections.abc import Callable, Mapping

from torch import Tensor

import onehop
from benchmarks.gpu.operators import OPERATORS, Inputs, Operator, Size
from onehop import Graph, reference

Shapes = Mapping[str, tuple[int, ...]]

# Heads and the width of each: the fewest columns that are measured, and four heads of the same width.
SIZES = ((1, 64), (4, 64))
_EDGE_COLUMNS = 8
_DROPOUT, _SEED = 0.3, 7
# Keeps scores of wide rows, and sums over a hub, within float16.
_SCALE = 0.01


def _untimed(
    name: str,
    shapes: Callable[[Size], Shapes],
    ours: Callable[[Graph, Inputs], Tensor],
    naive: Callable[[Tensor, int, Inputs], Tensor],
) -> Operator:
    return Operator(name, shapes, ours, naive, None)


def _weighted(name: str, reduce: str) -> Operator:
    return _untimed(
        name,
        lambda size: {"x": (size.nodes, size.heads, size.width), "weight": (size.edges, size.heads)},
        lambda graph, t: onehop.aggregate(graph, t["x"], t["weight"], reduce, backend="triton"),
        lambda edges, nodes, t: reference.aggregate(edges, t["x"], nodes, t["weight"], reduce),
    )


def _fusedmm(kernel: str) -> Operator:
    return _untimed(
        f"fusedmm-{kernel}",
        lambda size: dict.fromkeys(("dst", "src"), (size.nodes, size.heads * size.width)),
        lambda graph, t: onehop.fusedmm(graph, t["dst"], t["src"], kernel, scale=_SCALE, backend="triton"),
        lambda edges, _, t: reference.fusedmm(edges, t["dst"], t["src"], kernel, _SCALE),
    )


def _scaled(size: Size) -> Shapes:
    return {
        "x": (size.nodes, size.heads * size.width),
        "src_scale": (size.nodes,),
        "dst_scale": (size.nodes,),
    }


def _gat(size: Size) -> Shapes:
    scores = size.nodes, size.heads
    return {
        "x": (*scores, size.width),
        "score_src": scores,
        "score_dst": scores,
        "edge_score": (size.edges, size.heads),
    }


def _gatv2(size: Size) -> Shapes:
    rows = size.nodes, size.heads, size.width
    return {
        "x_src": rows,
        "x_dst": rows,
        "att": (size.heads, size.width),
        "edge": (size.edges, size.heads, size.width),
    }


def _attention(size: Size) -> Shapes:
    rows = size.nodes, size.heads, size.width
    return {
        **dict.fromkeys(("query", "key", "value"), rows),
        "edge": (size.edges, _EDGE_COLUMNS),
        "edge_weight": (size.heads * size.width, _EDGE_COLUMNS),
    }


# Operators by name: those that no table has, and what edges bring: weights, scores, features and dropout.
UNTIMED = {
    operator.name: operator
    for operator in (
        _weighted("weighted-heads", "sum"),
        *(_weighted(f"weighted-{reduce}", reduce) for reduce in ("mean", "max", "min")),
        _untimed(
            "scaled-sum",
            _scaled,
            lambda graph, t: onehop.aggregate(
                graph, t["x"], src_scale=t["src_scale"], dst_scale=t["dst_scale"], backend="triton"
            ),
            lambda edges, nodes, t: reference.aggregate(
                edges, t["x"], nodes, src_scale=t["src_scale"], dst_scale=t["dst_scale"]
            ),
        ),
        _untimed(
            "sddmm",
            lambda size: dict.fromkeys(("dst", "src"), (size.nodes, size.heads, size.width)),
            lambda graph, t: onehop.sddmm(graph, t["dst"], t["src"], backend="triton"),
            lambda edges, _, t: reference.sddmm(edges, t["dst"], t["src"]),
        ),
        *(_fusedmm(kernel) for kernel in ("sigmoid", "tdist", "dot")),
        _untimed(
            "edge-softmax",
            lambda size: {"scores": (size.edges, size.heads)},
            lambda graph, t: onehop.edge_softmax(graph, t["scores"], backend="triton"),
            lambda edges, nodes, t: reference.edge_softmax(edges, t["scores"], nodes),
        ),
        _untimed(
            "gat-edges",
            _gat,
            lambda graph, t: onehop.gat(
                graph,
                t["x"],
                t["score_src"],
                t["score_dst"],
                edge_score=t["edge_score"],
                dropout=_DROPOUT,
                seed=_SEED,
                backend="triton",
            ),
            lambda edges, _, t: reference.gat(
                edges,
                t["x"],
                t["score_src"],
                t["score_dst"],
                edge_score=t["edge_score"],
                dropout=_DROPOUT,
                seed=_SEED,
            )[0],
        ),
        _untimed(
            "gatv2-edges",
            _gatv2,
            lambda graph, t: onehop.gatv2(
                graph,
                t["x_src"],
                t["x_dst"],
                t["att"],
                edge=t["edge"],
                dropout=_DROPOUT,
                seed=_SEED,
                backend="triton",
            ),
            lambda edges, _, t: reference.gatv2(
                edges, t["x_src"], t["x_dst"], t["att"], edge=t["edge"], dropout=_DROPOUT, seed=_SEED
            )[0],
        ),
        _untimed(
            "attention-edges",
            _attention,
            lambda graph, t: onehop.attention(
                graph,
                t["query"],
                t["key"],
                t["value"],
                edge=(t["edge"], t["edge_weight"]),
                dropout=_DROPOUT,
                seed=_SEED,
                backend="triton",
            ),
            lambda edges, _, t: reference.attention(
                edges,
                t["query"],
                t["key"],
                t["value"],
                edge=(t["edge"], t["edge_weight"]),
                dropout=_DROPOUT,
                seed=_SEED,
            )[0],
        ),
    )
}
CHECKED = OPERATORS | UNTIMED
