"""The operators that are checked and measured on a GPU: what they take, and how to call them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

import onehop
from benchmarks.gpu.floors import (
    AttentionShape,
    Floor,
    Shape,
    attention_floor,
    attention_grad_floor,
    extremum_floor,
    extremum_grad_floor,
    sum_floor,
)
from onehop import Graph, reference
from onehop.calls import Rule

Inputs = dict[str, Tensor]
_S = TypeVar("_S", Shape, AttentionShape)
EDGE_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Size:
    """N nodes and E edges of a graph, H heads, and the width D of each."""

    nodes: int
    edges: int
    heads: int
    width: int

    def shape(self, letters: str) -> tuple[int, ...]:
        """The sizes that letters stand for: those above, F for H * D, C for columns of edge features."""
        known = {"N": self.nodes, "E": self.edges, "H": self.heads, "D": self.width, "C": EDGE_COLUMNS}
        known["F"] = self.heads * self.width
        return tuple(known[letter] for letter in letters)


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
        shapes: Its tensors, by name, in the letters of :meth:`Size.shape`; all are differentiated.
        ours: (graph, tensors) -> output.
        naive: (edge_index, nodes, tensors) -> output: a row an edge, as the formula says.
        floors: Bytes that its passes have to move; None where no formula is kept.
    """

    name: str
    shapes: Mapping[str, str]
    ours: Callable[[Graph, Inputs], Tensor]
    naive: Callable[[Tensor, int, Inputs], Tensor]
    floors: Floors | None

    def inputs(self, size: Size, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Inputs:
        """Random tensors that want gradients."""
        generator = torch.Generator(device).manual_seed(seed)
        return {
            name: torch.randn(size.shape(letters), generator=generator, device=device)
            .to(dtype)
            .requires_grad_()
            for name, letters in self.shapes.items()
        }


def operator(
    name: str, function: str, shapes: Mapping[str, str], floors: Floors | None = None, **options: Any
) -> Operator:
    """A function of onehop, and the one of its reference with the same name.

    Args:
        name: What tables call it.
        function: The name of both functions.
        shapes: Their tensors, by the names of the parameters; "edge_weight" goes into "edge".
        floors: As the operator's.
        **options: Further arguments of both.
    """
    kernels, formula = getattr(onehop, function), getattr(reference, function)
    counts_nodes = "num_dst" in inspect.signature(formula).parameters

    def naive(edge_index: Tensor, nodes: int, inputs: Inputs) -> Tensor:
        count = {"num_dst": nodes} if counts_nodes else {}
        out = formula(edge_index, **_operands(inputs), **count, **options)
        result: Tensor = out[0] if isinstance(out, tuple) else out
        return result

    return Operator(
        name,
        shapes,
        lambda graph, inputs: kernels(graph, **_operands(inputs), **options, backend="triton"),
        naive,
        floors,
    )


def _operands(inputs: Inputs) -> dict[str, Any]:
    given: dict[str, Any] = dict(inputs)
    if "edge_weight" in given:
        given["edge"] = given["edge"], given.pop("edge_weight")
    return given


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


def _shape(size: Size, itemsize: int) -> Shape:
    return Shape(size.nodes, size.nodes, size.edges, size.heads * size.width, itemsize)


def by_name(*operators: Operator) -> dict[str, Operator]:
    """The operators by their names."""
    return {each.name: each for each in operators}


_PLAIN = {"x": "NF"}
_SUMS = _floors_of(_shape, sum_floor, sum_floor)
_EXTREMA = _floors_of(_shape, extremum_floor, extremum_grad_floor)
GAT = {"x": "NHD", "score_src": "NH", "score_dst": "NH"}
GATV2 = {"x_src": "NHD", "x_dst": "NHD", "att": "HD"}
ATTENTION = {"query": "NHD", "key": "NHD", "value": "NHD"}
OPERATORS = by_name(
    operator("sum", "aggregate", _PLAIN, _SUMS),
    operator("weighted-sum", "aggregate", {**_PLAIN, "weight": "E"}),
    operator("mean", "aggregate", _PLAIN, _SUMS, reduce="mean"),
    operator("max", "aggregate", _PLAIN, _EXTREMA, reduce="max"),
    operator("min", "aggregate", _PLAIN, _EXTREMA, reduce="min"),
    operator("gat", "gat", GAT, _attention_floors("gat")),
    operator("gatv2", "gatv2", GATV2, _attention_floors("gatv2")),
    operator("attention", "attention", ATTENTION, _attention_floors("dot")),
)
