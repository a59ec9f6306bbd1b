"""The operators that are checked and measured on a GPU: what they take, and how to call them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

import onehop
from benchmarks.gpu.attention_floors import AttentionShape, attention_floor, attention_grad_floor
from benchmarks.gpu.floors import Floor, Shape, extremum_floor, extremum_grad_floor, sum_floor
from onehop import Graph, reference
from onehop.calls import Rule

Inputs = dict[str, Tensor]
_S = TypeVar("_S", Shape, AttentionShape)


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
class Floors:
    """Bytes of an operator's passes.

    Attributes:
        forward: (size, bytes of a feature) -> those of the forward pass.
        backward: Likewise; of all gradients.
    """

    forward: Callable[[Size, int], Floor]
    backward: Callable[[Size, int], Floor]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator.

    Attributes:
        name: What tables call it.
        shapes: Its tensors, by name; all are differentiated.
        ours: (graph, tensors) -> output.
        naive: (edge_index, nodes, tensors) -> output: a row an edge, as the formula says.
        floors: Bytes that its passes have to move; None where no formula is kept.
    """

    name: str
    shapes: Callable[[Size], Mapping[str, tuple[int, ...]]]
    ours: Callable[[Graph, Inputs], Tensor]
    naive: Callable[[Tensor, int, Inputs], Tensor]
    floors: Floors | None

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
    extremum = reduce in ("max", "min")
    forward, backward = (extremum_floor, extremum_grad_floor) if extremum else (sum_floor, sum_floor)
    return Operator(
        name,
        shapes,
        lambda graph, t: onehop.aggregate(graph, t["x"], t.get("weight"), reduce, backend="triton"),
        lambda edges, nodes, t: reference.aggregate(edges, t["x"], nodes, t.get("weight"), reduce),
        _floors_of(_shape, forward, backward) if shapes is _plain else None,
    )


def _floors_of(
    shape: Callable[[Size, int], _S], forward: Callable[[_S], Floor], backward: Callable[[_S], Floor]
) -> Floors:
    return Floors(
        lambda size, itemsize: forward(shape(size, itemsize)),
        lambda size, itemsize: backward(shape(size, itemsize)),
    )


def _attention_floors(rule: Rule) -> Floors:
    def shape(size: Size, itemsize: int) -> AttentionShape:
        return AttentionShape(
            rule, size.nodes, size.nodes, size.edges, size.heads, size.width, itemsize, max(itemsize, 4)
        )

    return _floors_of(shape, attention_floor, attention_grad_floor)


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
            _attention_floors("gat"),
        ),
        Operator(
            "gatv2",
            _gatv2,
            lambda graph, t: onehop.gatv2(graph, t["x_src"], t["x_dst"], t["att"], backend="triton"),
            lambda edges, _, t: reference.gatv2(edges, t["x_src"], t["x_dst"], t["att"])[0],
            _attention_floors("gatv2"),
        ),
        Operator(
            "attention",
            _attention,
            lambda graph, t: onehop.attention(graph, t["query"], t["key"], t["value"], backend="triton"),
            lambda edges, _, t: reference.attention(edges, t["query"], t["key"], t["value"])[0],
            _attention_floors("dot"),
        ),
    )
}
