"""Graphs and features: tensors from their descriptions, in the layouts that programs meet."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from tests.differential.program import Features, Graph

ATTRIBUTES = 2
"""Columns of the edge attributes."""

RELATIONS = 3
"""Types of edges."""

MATRICES = ("csr", "csc", "coo")
"""Forms of graphs that are sparse matrices of torch's."""

SPARSE_TENSOR = "sparse tensor"
"""The form of graphs that are matrices of torch_sparse's."""

HAS_SPARSE_TENSORS = importlib.util.find_spec("torch_sparse") is not None
"""Whether there can be such graphs."""


@dataclass
class Edges:
    """One graph as a program has it."""

    index: Any  # [2, E], or a sparse matrix, or a ``SparseTensor``
    weight: Tensor | None  # [E] or None
    weight_leaf: Tensor | None  # what gets the gradient of the weight; None if nothing does
    attr: Tensor  # [E, ATTRIBUTES]
    type: Tensor  # [E]
    # Tensors that ``index`` and ``weight`` are views of, kept so that programs may write to them.
    held: tuple[Tensor, ...]
    computed: bool = False  # whether layers get weights that are computed from ``weight``, anew each time
    values: Tensor | None = None  # [E], what a sparse matrix was made of; None where ``index`` is none

    def adjacency(self) -> Any:
        """The edges as layers get them: a matrix of values that need a gradient is made anew each time."""
        values = self.values
        if values is None or not (values.requires_grad or self.computed):
            return self.index
        return with_values(self.index, values * 1.5 if self.computed else values)

    def weights(self) -> Tensor | None:
        """What layers get."""
        return self.weight * 1.5 if self.computed and self.weight is not None else self.weight


@dataclass
class Nodes:
    """Features as a program has them."""

    x: Tensor  # [N, F], or [B, N, F]
    leaf: Tensor | None  # what gets the gradient; None if nothing does
    held: Tensor  # the tensor that ``x`` is a view of, or ``x`` itself
    computed: bool = False  # whether layers get what is computed from ``x``, anew each time

    def operand(self) -> Tensor:
        """What layers get."""
        return self.x * 1.0 if self.computed else self.x


def _chance(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _pairs(graph: Graph, nodes: int, chance: torch.Generator) -> Tensor:
    """[2, E]: the edges, by kind."""
    every = torch.arange(nodes)
    if graph.kind == "none":
        return torch.empty(2, 0, dtype=torch.int64)
    if graph.kind == "star":
        return torch.stack([every, torch.zeros_like(every)])
    if graph.kind == "out-star":
        return torch.stack([torch.zeros_like(every), every])
    if graph.kind == "loops":
        return torch.stack([every, every])
    if graph.kind == "path":
        return torch.stack([every[:-1], every[1:]])
    if graph.kind == "repeated":
        pairs = torch.randint(nodes, (2, max(graph.edges // 3, 1)), generator=chance)
        return pairs.repeat(1, 3)
    pairs = torch.randint(nodes, (2, graph.edges), generator=chance)
    if graph.kind == "both ways":
        pairs = torch.cat([pairs, pairs.flip(0)], dim=1)
    if graph.kind == "sorted":
        pairs = pairs[:, pairs[1].argsort(stable=True)]
    if graph.kind == "few targets":
        pairs[1] %= max(nodes // 3, 1)
    return pairs


# For each layout of edges: the tensor that they are a view of, and the view of it that has so many.
_EDGE_LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, int], Tensor]]] = {
    "plain": (lambda pairs: pairs.clone(), lambda base, edges: base),
    "transposed": (lambda pairs: pairs.t().contiguous(), lambda base, edges: base.t()),
    "slice": (lambda pairs: torch.cat([pairs, pairs[:, :2]], dim=1), lambda base, edges: base[:, :edges]),
    "every second": (lambda pairs: pairs.repeat_interleave(2, dim=1), lambda base, edges: base[:, ::2]),
    "of a stack": (lambda pairs: torch.stack([pairs.flip(0), pairs]), lambda base, edges: base[1]),
    "view of a view": (
        lambda pairs: torch.cat([pairs.flatten(), pairs.flatten()]),
        lambda base, edges: base[2 * edges :].view(2, edges),
    ),
}


def make_edges(graph: Graph, nodes: int, dtype: torch.dtype) -> Edges:
    """A graph from its description."""
    chance = _chance(graph.seed)
    pairs = _pairs(graph, nodes, chance)
    if graph.form == "tensor":
        pairs = pairs.to(getattr(torch, graph.dtype))
    count = pairs.size(1)
    laid_out, view = _EDGE_LAYOUTS[graph.layout]
    base = laid_out(pairs)
    index = view(base, count)
    numbers = torch.rand(count, generator=chance, dtype=torch.float64) + 0.5
    attr = torch.randn(count, ATTRIBUTES, generator=chance, dtype=torch.float64).to(dtype)
    kinds = torch.randint(RELATIONS, (count,), generator=chance)
    weight, leaf, held = _weight(graph.weight, numbers.to(dtype))
    if graph.form == "EdgeIndex":
        index = EdgeIndex(index.contiguous(), sparse_size=(nodes, nodes))
    elif graph.form in MATRICES:
        return _matrix(graph, pairs, nodes, numbers.to(dtype), attr, kinds)
    elif graph.form == SPARSE_TENSOR:
        return _sparse_tensor(graph, pairs, nodes, numbers.to(dtype), attr, kinds)
    computed = graph.weight == "computed" and weight is not None
    return Edges(index, weight, leaf, attr, kinds, (base,) if held is None else (base, held), computed)


def with_values(matrix: Any, values: Tensor) -> Any:
    """A matrix with the index arrays of another one."""
    if not isinstance(matrix, Tensor):
        return matrix.set_value(values, layout="coo")
    if matrix.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(matrix._indices(), values, matrix.shape, is_coalesced=True)
    if matrix.layout is torch.sparse_csr:
        return torch.sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(), values, matrix.shape)
    return torch.sparse_csc_tensor(matrix.ccol_indices(), matrix.row_indices(), values, matrix.shape)


def _matrix(graph: Graph, pairs: Tensor, nodes: int, numbers: Tensor, attr: Tensor, kinds: Tensor) -> Edges:
    """A sparse matrix of the edges, each once; its values are of the kinds that weights are of."""
    at = pairs.flip(0).long().unique(dim=1).contiguous() if pairs.size(1) else pairs.long()
    entries = torch.sparse_coo_tensor(at, numbers[: at.size(1)], (nodes, nodes), is_coalesced=True)
    made = entries if graph.form == "coo" else getattr(entries, f"to_sparse_{graph.form}")()
    values, leaf, held = _weight(graph.weight, made.values().clone())
    if values is None or values.dim() != 1:
        values = torch.ones(at.size(1), dtype=numbers.dtype)
    count = (slice(at.size(1)),)
    index = with_values(made, values.detach())
    if graph.dtype == "int32" and graph.form != "coo":
        arrays = (index.crow_indices, index.col_indices)
        if graph.form == "csc":
            arrays = (index.ccol_indices, index.row_indices)
        make = torch.sparse_csr_tensor if graph.form == "csr" else torch.sparse_csc_tensor
        index = make(arrays[0]().int(), arrays[1]().int(), values.detach(), index.shape)
    return _of_matrix(graph, index, values, leaf, held, attr[count], kinds[count])


def _sparse_tensor(
    graph: Graph, pairs: Tensor, nodes: int, numbers: Tensor, attr: Tensor, kinds: Tensor
) -> Edges:
    """The same as a ``SparseTensor``, which may list an edge several times and have no values."""
    from torch_sparse import SparseTensor

    sources, targets = pairs.long()
    order = (targets * nodes + sources).argsort(stable=True)
    values, leaf, held = _weight(graph.weight, numbers[order])
    index = SparseTensor(
        row=targets[order],
        col=sources[order],
        value=None if values is None else values.detach(),
        sparse_sizes=(nodes, nodes),
        is_sorted=True,
    )
    return _of_matrix(graph, index, values, leaf, held, attr[order], kinds[order])


def _of_matrix(
    graph: Graph,
    index: Any,
    values: Tensor | None,
    leaf: Tensor | None,
    held: Tensor | None,
    attr: Tensor,
    kinds: Tensor,
) -> Edges:
    return Edges(
        index,
        None,
        leaf,
        attr,
        kinds,
        tuple(each for each in (values, held) if each is not None),
        graph.weight == "computed" and leaf is not None,
        values,
    )


def _weight(kind: str, numbers: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The weights, who gets their gradient, and what they are a view of."""
    if kind == "none":
        return None, None, None
    if kind in ("leaf", "computed"):
        numbers.requires_grad_()
        return numbers, numbers, None
    if kind == "parameter":
        parameter = torch.nn.Parameter(numbers)
        return parameter, parameter, None
    if kind == "view":
        base = torch.cat([numbers, numbers])
        return base[len(numbers) :], None, base
    if kind == "strided":
        base = numbers.repeat_interleave(2)
        return base[::2], None, base
    if kind == "expanded":
        base = numbers.new_full((1,), 0.75)
        return base.expand(len(numbers)), None, base
    if kind == "column":
        return numbers.unsqueeze(1), None, None
    if kind == "float32":
        return numbers.float(), None, None
    return numbers, None, None


def _numbers(features: Features, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    chance = _chance(features.seed + 1000)
    if features.values == "few":
        return torch.randint(-2, 3, shape, generator=chance).to(dtype)
    numbers = torch.randn(shape, generator=chance, dtype=torch.float64)
    if features.values == "positive":
        numbers = numbers.abs() + 0.1
    elif features.values == "sparse":
        numbers = numbers * (torch.rand(shape, generator=chance) < 0.4)
    elif features.values == "not a number" and numbers.numel():
        numbers.view(-1)[0] = float("nan")
    elif features.values == "infinite" and numbers.numel():
        numbers.view(-1)[-1] = float("inf")
    return numbers.to(dtype)


# For each layout of features: the tensor that they are a view of, and the view of it that has a shape.
_LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Any], Tensor]]] = {
    "plain": (lambda x: x, lambda held, shape: held),
    "transposed": (lambda x: x.mT.contiguous(), lambda held, shape: held.mT),
    "rows": (lambda x: torch.cat([x, x], dim=-2), lambda held, shape: held[..., shape[-2] :, :]),
    "columns": (lambda x: x.repeat_interleave(2, dim=-1), lambda held, shape: held[..., ::2]),
    "view of a view": (lambda x: torch.stack([x, x]), lambda held, shape: held.view(-1).view(held.shape)[1]),
    "expanded": (lambda x: x[..., :1, :].contiguous(), lambda held, shape: held.expand(shape)),
}


def make_nodes(features: Features, nodes: int, width: int, dtype: torch.dtype) -> Nodes:
    """Features from their description."""
    shape = (*features.leading, nodes, width)
    numbers = _numbers(features, shape, dtype)
    if features.grad == "computed":
        # What a program writes to is the leaf; the features are computed from it at every call.
        numbers.requires_grad_()
        return Nodes(numbers, numbers, numbers, computed=True)
    placed, view = _LAYOUTS[features.layout]
    held = placed(numbers)
    if features.grad == "leaf":
        held.requires_grad_()
        return Nodes(view(held, shape), held, held)
    x = view(held, shape)
    if features.grad == "parameter":
        parameter = torch.nn.Parameter(x)
        return Nodes(parameter, parameter, held)
    return Nodes(x, None, held)
