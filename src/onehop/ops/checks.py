"""Checks of what users pass; native code never sees anything that has not been through here."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_graph(graph: object) -> None:
    """Raises unless ``graph`` is a Graph."""
    if not isinstance(graph, Graph):
        raise ArgumentError(
            f"graph: expected an onehop.Graph, got {type(graph).__name__}; "
            f"make one with Graph.from_edge_index."
        )


def check_features(name: str, x: Tensor, count: int, what: str) -> None:
    """Raises unless ``x`` is a dense float tensor with a row for every one of ``count`` nodes."""
    if not isinstance(x, Tensor) or x.layout != torch.strided:
        kind = f"a {x.layout} tensor" if isinstance(x, Tensor) else type(x).__name__
        raise ArgumentError(f"{name}: expected a dense tensor, got {kind}.")
    if x.dtype not in FLOATS:
        raise ArgumentError(
            f"{name}: expected float32, float64, bfloat16 or float16, got {x.dtype}; convert it."
        )
    if x.dim() < 2 or x.size(0) != count:
        raise ArgumentError(
            f"{name}: expected a row for each of the {count} {what}, got shape {list(x.shape)}."
        )


def check_vector(name: str, vector: Tensor, count: int, what: str, x: Tensor) -> None:
    """Raises unless ``vector`` is a float tensor [count] on the device of ``x``."""
    if not isinstance(vector, Tensor) or vector.layout != torch.strided:
        raise ArgumentError(f"{name}: expected a dense tensor, got {type(vector).__name__}.")
    if vector.dtype not in FLOATS:
        raise ArgumentError(
            f"{name}: expected float32, float64, bfloat16 or float16, got {vector.dtype}; convert it."
        )
    if vector.dim() != 1 or vector.size(0) != count:
        raise ArgumentError(
            f"{name}: expected one entry for each of the {count} {what}, got shape {list(vector.shape)}."
        )
    if vector.device != x.device:
        raise ArgumentError(f"{name}: expected it on {x.device} as the features are, got {vector.device}.")
