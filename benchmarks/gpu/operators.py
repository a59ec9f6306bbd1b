"""The operators that are checked and measured on a GPU: what they take, and how to call them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

import onehop
from benchmarks.gpu import block_calls
from benchmarks.gpu.attention_floors import AttentionShape, attention_floor
from benchmarks.gpu.floors import Floor, Shape, extremum_floor, sum_floor
from onehop import Graph, reference
from onehop.calls import Rule

Inputs = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Size:
    """Nodes and edges of a graph, heads, and the width of each.

    Attributes:
        nodes: N.
        edges: E.
        heads: H.
        width: D.
    """

    nodes: int
    edges: int
    heads: int
    width: int


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator.

    Attributes:
        name: What tables call it.
        shapes: Its tensors, by name; all are differentiated.
        ours: (graph, tensors) -> output.
        naive: (edge_index, nodes, tensors) -> output: a row an edge, as the formula says.
        floor: Bytes that its forward pass has to move; None where no formula is kept.
        dtypes: Of the features that it takes; None means all.
        graphs: On which it is measured; None means all.
    """

    name: str
    shapes: Callable[[Size], Mapping[str, tuple[int, ...]]]
    ours: Callable[[Graph, Inputs], Tensor]
    naive: Callable[[Tensor, int, Inputs], Tensor]
    floor: Callable[[Size, int], Floor] | None
    dtypes: tuple[torch.dtype, ...] | None = None
    graphs: tuple[str, ...] | None = None

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether it computes with such features."""
        return self.dtypes is None or dtype in self.dtypes

    def inputs(self, size: Size, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Inputs:
        """Random tensors that want gradients."""
        generator = torch.Generator(device).manual_seed(seed)
        return {
            name: torch.randn(shape, generator=generator, device=device).to(dtype).requires_grad_()
            for name, shape in self.shapes(size).items()
        }


def _plain(size: Size) -> dict[str, tuple[int, ...]]:
    return {"x": (size.nodes, size.heads * size.width)}


def _weighted(size: Size) -> dict[str, tuple[int, ...]]:
    return {**_plain(size), "weight": (size.edges,)}


def _gat(size: Size) -> dict[str, tuple[int, ...]]:
    scores = size.nodes, size.heads
    return {"x": (*scores, size.width), "score_src": scores, "score_dst": scores}


def _gatv2(size: Size) -> dict[str, tuple[int, ...]]:
    rows = size.nodes, size.heads, size.width
    return {"x_src": rows, "x_dst": rows, "att": (size.heads, size.width)}


def _attention(size: Size) -> dict[str, tuple[int, ...]]:
    rows = size.nodes, size.heads, size.width
    return {"query": rows, "key": rows, "value": rows}


def _shape(size: Size, itemsize: int) -> Shape:
    return Shape(size.nodes, size.nodes, size.edges, size.heads * size.width, itemsize)


def _reduction(name: str, shapes: Callable[[Size], Mapping[str, tuple[int, ...]]], reduce: str) -> Operator:
    floor = sum_floor if reduce in ("sum", "mean") else extremum_floor
    return Operator(
        name,
        shapes,
        lambda graph, t: onehop.aggregate(graph, t["x"], t.get("weight"), reduce, backend="triton"),
        lambda edges, nodes, t: reference.aggregate(edges, t["x"], nodes, t.get("weight"), reduce),
        (lambda size, itemsize: floor(_shape(size, itemsize))) if shapes is _plain else None,
    )


def _floor_of(rule: Rule) -> Callable[[Size, int], Floor]:
    def floor(size: Size, itemsize: int) -> Floor:
        shape = AttentionShape(
            rule, size.nodes, size.nodes, size.edges, size.heads, size.width, itemsize, max(itemsize, 4)
        )
        return attention_floor(shape)

    return floor


# Of benchmarks.gpu.graphs: where many edges share a source with their neighbours.
_DENSE = ("tolokers-2", "hm-prices")
# What is measured beside an operator that is another's variant.
VARIANT_OF = {"sum-blocks": "sum", "attention-blocks": "attention"}

OPERATORS = {
    operator.name: operator
    for operator in (
        _reduction("sum", _plain, "sum"),
        _reduction("weighted-sum", _weighted, "sum"),
        _reduction("mean", _plain, "mean"),
        _reduction("max", _plain, "max"),
        _reduction("min", _plain, "min"),
        Operator(
            "gat",
            _gat,
            lambda graph, t: onehop.gat(graph, t["x"], t["score_src"], t["score_dst"], backend="triton"),
            lambda edges, _, t: reference.gat(edges, t["x"], t["score_src"], t["score_dst"])[0],
            _floor_of("gat"),
        ),
        Operator(
            "gatv2",
            _gatv2,
            lambda graph, t: onehop.gatv2(graph, t["x_src"], t["x_dst"], t["att"], backend="triton"),
            lambda edges, _, t: reference.gatv2(edges, t["x_src"], t["x_dst"], t["att"])[0],
            _floor_of("gatv2"),
        ),
        Operator(
            "attention",
            _attention,
            lambda graph, t: onehop.attention(graph, t["query"], t["key"], t["value"], backend="triton"),
            lambda edges, _, t: reference.attention(edges, t["query"], t["key"], t["value"])[0],
            _floor_of("dot"),
        ),
        Operator(
            "sum-blocks",
            _plain,
            lambda graph, t: block_calls.total(graph, t["x"]),
            lambda edges, nodes, t: reference.aggregate(edges, t["x"], nodes),
            lambda size, itemsize: sum_floor(_shape(size, itemsize)),
            block_calls.dtypes(),
            _DENSE,
        ),
        Operator(
            "attention-blocks",
            _attention,
            lambda graph, t: block_calls.attention(graph, t["query"], t["key"], t["value"]),
            lambda edges, _, t: reference.attention(edges, t["query"], t["key"], t["value"])[0],
            _floor_of("dot"),
            block_calls.dtypes(),
            _DENSE,
        ),
    )
}
