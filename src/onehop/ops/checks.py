"""Checks of users' arguments; native code never sees unchecked ones.

Valid arguments pass without calls of other functions, because on small graphs each call takes noticeable
time.
"""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.handle import GraphInProgram

# A tuple and not a union, because torch 2.9 does not trace unions.
_GRAPHS = (Graph, GraphInProgram)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_graph(graph: object) -> None:
    """Raises unless ``graph`` is a Graph, or represents one in a program."""
    if not isinstance(graph, _GRAPHS):
        raise ArgumentError(
            f"graph: expected an onehop.Graph, got {type(graph).__name__}; "
            f"make one with Graph.from_edge_index."
        )


def check_features(name: str, x: Tensor, count: int, what: str) -> None:
    """Raises unless ``x`` is a dense float tensor with ``count`` rows, one for each node."""
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.dtype not in FLOATS:
        raise not_dense(name, x)
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
        raise elsewhere("weight", weight, x)


def check_edge_values(name: str, values: Tensor, edges: int) -> None:
    """Raises unless ``values`` is a dense float tensor [E] or [E, H]."""
    if not isinstance(values, Tensor) or values.layout != torch.strided or values.dtype not in FLOATS:
        raise not_dense(name, values)
    if values.dim() not in (1, 2) or values.size(0) != edges:
        raise ArgumentError(
            f"{name}: expected [{edges}] or [{edges}, heads], an entry for each edge, "
            f"got shape {list(values.shape)}."
        )


def check_vector(name: str, vector: Tensor, count: int, what: str, x: Tensor) -> None:
    """Raises unless ``vector`` is a float tensor [count] on the device of ``x``."""
    if not isinstance(vector, Tensor) or vector.layout != torch.strided or vector.dtype not in FLOATS:
        raise not_dense(name, vector)
    if vector.dim() != 1 or vector.size(0) != count:
        raise ArgumentError(
            f"{name}: expected one entry for each of the {count} {what}, got shape {list(vector.shape)}."
        )
    if vector.device != x.device:
        raise elsewhere(name, vector, x)


def not_dense(name: str, tensor: object) -> ArgumentError:
    """Return the error for an argument that is not a dense float tensor."""
    if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
        return ArgumentError(
            f"{name}: expected float32, float64, bfloat16 or float16, got {tensor.dtype}; convert it."
        )
    kind = f"a {tensor.layout} tensor" if isinstance(tensor, Tensor) else type(tensor).__name__
    return ArgumentError(f"{name}: expected a dense tensor, got {kind}.")


def elsewhere(name: str, tensor: Tensor, like: Tensor) -> ArgumentError:
    """Return the error for an argument on another device than the features."""
    return ArgumentError(f"{name}: expected it on {like.device} as the features are, got {tensor.device}.")
