"""Operands of the three attention operators, and how each is called, fast and by the reference."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop import Graph, reference
from tests.ops.comparison import compare

OPERATORS = ("gat", "gatv2", "attention")
EDGES = ("none", "rows", "projected")


def _tensors(shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return {
        name: torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }


def operands(
    operator: str,
    edge_index: Tensor,
    num_src: int,
    num_dst: int,
    heads: int,
    width: int,
    dtype: torch.dtype = torch.float32,
    edge: str = "none",
) -> dict[str, Tensor]:
    """Random operands by name; ``edge`` is one of EDGES."""
    edges = edge_index.size(1)
    of_source, of_target = (num_src, heads, width), (num_dst, heads, width)
    shapes: dict[str, tuple[int, ...]]
    if operator == "gat":
        shapes = {"x": of_source, "score_src": (num_src, heads), "score_dst": (num_dst, heads)}
        if edge != "none":
            shapes["edge_score"] = (edges, heads)
        return _tensors(shapes, dtype)
    if operator == "gatv2":
        shapes = {"x_src": of_source, "x_dst": of_target, "att": (heads, width)}
    else:
        shapes = {"query": of_target, "key": of_source, "value": of_source}
    if edge == "rows":
        shapes["edge"] = (edges, heads, width)
    elif edge == "projected":
        shapes |= {"edge_features": (edges, 3), "edge_weight": (heads * width, 3)}
    return _tensors(shapes, dtype)


def call(function: Callable[..., Any], settings: dict[str, Any], **tensors: Tensor) -> Any:
    """The operator with tensors by name; the pair of edge features is put together."""
    if "edge_features" in tensors:
        tensors["edge"] = (tensors.pop("edge_features"), tensors.pop("edge_weight"))  # type: ignore[assignment]
    return function(**tensors, **settings)


def check(
    operator: str,
    edge_index: Tensor,
    num_src: int,
    num_dst: int,
    inputs: dict[str, Tensor],
    with_weights: bool = False,
    backend: str | None = None,
    graph: Graph | None = None,
    **settings: Any,
) -> None:
    """Output, weights if wanted, and the gradient to every operand, against the reference in float64."""
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst)) if graph is None else graph
    options = {"return_attention_weights": with_weights, "backend": backend}

    def fast(**tensors: Tensor) -> Tensor:
        function = partial(getattr(onehop, operator), graph, **options)
        out = call(function, settings, **tensors)
        return torch.cat([part.flatten() for part in out]) if with_weights else out

    def naive(**tensors: Tensor) -> Tensor:
        out, weights = call(partial(getattr(reference, operator), edge_index), settings, **tensors)
        return torch.cat([out.flatten(), weights.flatten()]) if with_weights else out

    # Gradients of scores are differences of numbers of this size.
    compare(fast, naive, dict(inputs), list(inputs), magnitude=1.0)
