"""Specs of operands: each admits operands that a rule can use, and says why it refuses others.

PyG takes the first of a pair of operands for the sources and the second for the destinations, in either flow.
Operands that PyG would refuse are also refused here: PyG's code runs, and raises its own error.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from onehop.integrations.pyg.call import Call
from onehop.integrations.pyg.edges import SOURCE, TARGET, Edges
from onehop.integrations.pyg.leave import (
    BIPARTITE_BACKWARDS,
    FLOATS,
    LEFT_TO_PYG,
    SIGNALS,
    TRACED,
    Leave,
    OfSignals,
    need,
)
from onehop.ops.contexts import WRAPPED, in_older_vmap, is_wrapped, wraps

_PLAIN = (Tensor, Parameter)
# A tuple and not a union, because torch 2.6 does not trace unions.
_PAIRS = (tuple, list)
_MATRIX, _BATCHED = 2, 3
_PAIR = 2

BOTH = 2
"""A value like :data:`SOURCE` and :data:`TARGET`: the operand has rows for both ends of the edges."""


def features(x: Any, edges: Edges, node_dim: int) -> Tensor:
    """Admits features on any device: [N, F], or [B, N, F] if ``node_dim`` is -2 and edges are not a list."""
    if type(x) not in _PLAIN and not (edges.is_traced and type(x) in TRACED):
        raise Leave(f"the features are of type {type(x).__name__}")
    if x.dtype not in FLOATS:
        raise Leave("the features are not floating-point numbers of 16, 32 or 64 bits")
    if x.layout is not torch.strided:
        raise Leave("the features are sparse")
    if not edges.is_traced and (is_wrapped(x) or (in_older_vmap() and wraps(x))):
        raise Leave(WRAPPED)
    dims = x.dim()
    if dims == _MATRIX and node_dim in (-2, 0):
        return x  # type: ignore[no-any-return]
    need(dims == _BATCHED and node_dim == -2 and not edges.is_list, SIGNALS, OfSignals)
    return x  # type: ignore[no-any-return]


def backend(x: Tensor, edges: Edges, name: str) -> None:
    """Raises :class:`Leave` if no backend takes the features; ``name`` is the backend, or empty for any."""
    if x.is_cpu and not name:
        return  # on the CPU, every supported dtype has a fast path
    reason = edges.refusal(name, x)
    if reason is not None:
        raise Leave(f"features of {x.dtype} on {x.device} have no backend: {reason}")


def placement(name: str, edges: Edges, x: Tensor, *others: Tensor | None) -> None:
    """Raises :class:`Leave` if operands are on several devices, or on one without a backend."""
    on_cpu = edges.is_cpu  # a faster test than comparing devices
    for operand in (x, *others):
        if operand is not None and not (operand.is_cpu if on_cpu else operand.device == edges.device):
            if edges.is_part:
                raise Leave(f"the features or the edge weight are not on {edges.device}, where its part is")
            raise Leave(
                f"edge_index is on {edges.device} and an operand on {operand.device}; "
                f"PyG is left to report what does not fit"
            )
    backend(x, edges, name)


def is_feature(call: Call, tensor: Any, dims: int) -> bool:
    """Return whether an operand is a dense float tensor with ``dims`` dimensions on the edges' device."""
    edges = call.edges
    return (
        (type(tensor) in _PLAIN or (edges.is_traced and type(tensor) in TRACED))
        and tensor.dtype in FLOATS
        and ((tensor.is_cpu and edges.is_cpu) or tensor.device == edges.device)
        and tensor.layout is torch.strided
        and tensor.dim() == dims
        and (edges.is_traced or not (is_wrapped(tensor) or (in_older_vmap() and wraps(tensor))))
    )


def alike(x: Tensor, dtype: torch.dtype, *others: Any) -> None:
    """Raises :class:`Leave` unless all operands have this dtype and are on the device of ``x``."""
    same = all(isinstance(other, Tensor) and other.dtype is dtype for other in others)
    need(same, "its features and parameters differ in dtype")
    together = all(other.device == x.device for other in others)
    need(together, "its features and parameters are on different devices, which PyG is left to report")


GIVEN = None
"""The spec of an operand that is passed on unchecked; the rule checks it itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """The features that messages read: a tensor, or the first tensor of a pair."""

    def __call__(self, call: Call, name: str) -> Tensor:
        """Return the features of the sources; note the numbers of rows as PyG does."""
        operand, edges, dim = call.operands[name], call.edges, call.layer.node_dim
        if not isinstance(operand, _PAIRS):
            x = features(operand, edges, dim)
            edges.note(edges.sending, x.size(dim))
            return x
        if len(operand) != _PAIR:
            raise Leave(LEFT_TO_PYG)
        source, target = operand
        if not edges.forwards and target is not source:
            raise Leave(BIPARTITE_BACKWARDS)
        x = features(source, edges, dim)
        edges.note(SOURCE, x.size(dim))
        if target is not None:
            if not isinstance(target, Tensor) or target.dim() < _MATRIX:
                raise Leave("the destinations' features are no matrix")
            edges.note(TARGET, target.size(dim))
        return x


@dataclass(frozen=True, slots=True)
class Target:
    """The features of the destinations, which a message subtracts."""

    def __call__(self, call: Call, name: str) -> Tensor:
        """Return the features; note their number of rows."""
        x = features(call.operands[name], call.edges, call.layer.node_dim)
        call.edges.note(1 - call.edges.sending, x.size(call.layer.node_dim))
        return x


@dataclass(frozen=True, slots=True)
class Weight:
    """One number for each edge, [E] or [E, 1].

    Attributes:
        required: Whether PyG raises an error for None.
    """

    required: bool = False

    def __call__(self, call: Call, name: str) -> Tensor | None:
        """Return the weight, [E], or None. PyG's own products with a sparse matrix do not use the weight."""
        weight, edges = call.operands[name], call.edges
        if edges.fused:
            return None
        # PyG passes the values of a matrix only to arguments of this name.
        if weight is None and name == "edge_weight":
            weight = edges.values
        if type(weight) is edges.unmade:
            return cast(Tensor, weight)
        if weight is None:
            need(not self.required, "PyG is left to report the missing weight")
            return None
        if type(weight) not in _PLAIN and not (edges.is_traced and type(weight) in TRACED):
            raise Leave(f"the edge weight is of type {type(weight).__name__}")
        dense = weight.dtype in FLOATS and weight.layout is torch.strided
        need(dense, "the edge weight is not a dense floating-point tensor")
        if not edges.is_traced and wraps(weight):
            raise Leave(WRAPPED)
        if weight.dim() == _MATRIX and weight.size(1) == 1:
            weight = weight.squeeze(1)
        fits = weight.dim() == 1 and weight.size(0) == edges.count
        need(fits, "the edge weight is not one number an edge")
        return weight  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of features for attention, on the device of the edges.

    Attributes:
        dims: Number of dimensions: 3 for rows of heads, [N, H, C], and 2 for others, [N, C].
        end: The ends of edges whose nodes have a row: :data:`SOURCE`, :data:`TARGET` or :data:`BOTH`.
    """

    dims: int
    end: int

    def __call__(self, call: Call, name: str) -> Tensor:
        """Return the features; note their number of rows."""
        x, edges = call.operands[name], call.edges
        if not is_feature(call, x, self.dims):
            raise Leave(f"the features {_unfit(call, self.dims)}")
        if call.backend or not x.is_cpu:
            backend(x, edges, call.backend)
        if self.dims == _MATRIX and call.layer.node_dim not in (-2, 0):
            raise Leave("node_dim is not the first of two dimensions")
        if self.dims != _MATRIX and call.layer.node_dim != 0:
            raise Leave(LEFT_TO_PYG)
        rows = x.size(0)
        if self.end == BOTH:
            edges.note(SOURCE, rows)
            edges.note(TARGET, rows)
        else:
            edges.note(edges.sending if self.end == SOURCE else 1 - edges.sending, rows)
        return x  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Pair:
    """Features of sources and destinations, either of which may be None.

    Attributes:
        dims: Number of dimensions.
    """

    dims: int

    def __call__(self, call: Call, name: str) -> tuple[Tensor | None, Tensor | None]:
        """Return both; note their numbers of rows."""
        operand, edges = call.operands[name], call.edges
        sizes = edges.sizes
        if type(operand) is not tuple or len(operand) != _PAIR:
            raise Leave(f"{name} is not a pair")
        for end, tensor in enumerate(operand):
            if tensor is None:
                continue
            if not is_feature(call, tensor, self.dims):
                raise Leave(f"the operands {name} {_unfit(call, self.dims)}")
            if call.backend or not tensor.is_cpu:
                backend(tensor, edges, call.backend)
            if sizes[end] != tensor.size(0):
                edges.note(end, tensor.size(0))
        if not edges.forwards and None not in sizes and sizes[0] != sizes[1]:
            raise Leave(BIPARTITE_BACKWARDS)
        return operand


@dataclass(frozen=True, slots=True)
class PerEdge:
    """Numbers that belong to edges.

    Attributes:
        dims: 1 for [E], 2 for [E, any].
        sentence: The reason that is shown if an operand is refused.
    """

    dims: int
    sentence: str = LEFT_TO_PYG

    def __call__(self, call: Call, name: str) -> Tensor:
        """Return the numbers."""
        numbers = call.operands[name]
        fits = is_feature(call, numbers, self.dims) and numbers.size(0) == call.edges.count
        need(fits, self.sentence)
        return numbers  # type: ignore[no-any-return]


def _unfit(call: Call, dims: int) -> str:
    where = call.edges.device
    return f"are no dense floating-point tensors of {dims} dimensions on {where}, where edge_index is"
