"""Checks of what users pass; native code never sees anything that has not been through here."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.handle import GraphInProgram

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_graph(graph: object) -> None:
    """Raises unless ``graph`` is a Graph, or stands for one in a program."""
    if not isinstance(graph, Graph | GraphInProgram):
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
    shape = x.shape
    if len(shape) < 2 or shape[0] != count:
        raise ArgumentError(
            f"{name}: expected a row for each of the {count} {what}, got shape {list(shape)}."
        )


def check_head_weight(weight: Tensor, edges: int, x: Tensor) -> None:
    """Raises unless ``weight`` is a float tensor [E, H] on the device of ``x``, which is [num_src, H, D]."""
    check_edge_values("weight", weight, edges)
    if x.dim() != 3 or x.size(1) != weight.size(1) or not weight.size(1):
        raise ArgumentError(
            f"weight: a weight for each edge and head, {list(weight.shape)}, needs x of shape "
            f"[num_src, {weight.size(1)}, D], got {list(x.shape)}."
        )
    if weight.device != x.device:
        raise ArgumentError(f"weight: expected it on {x.device} as the features are, got {weight.device}.")


def check_edge_values(name: str, values: Tensor, edges: int) -> None:
    """Raises unless ``values`` is a dense float tensor [E] or [E, H]."""
    if not isinstance(values, Tensor) or values.layout != torch.strided:
        kind = f"a {values.layout} tensor" if isinstance(values, Tensor) else type(values).__name__
        raise ArgumentError(f"{name}: expected a dense tensor, got {kind}.")
    if values.dtype not in FLOATS:
        raise ArgumentError(
            f"{name}: expected float32, float64, bfloat16 or float16, got {values.dtype}; convert it."
        )
    if values.dim() not in (1, 2) or values.size(0) != edges:
        raise ArgumentError(
            f"{name}: expected [{edges}] or [{edges}, heads], an entry for each edge, "
            f"got shape {list(values.shape)}."
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
