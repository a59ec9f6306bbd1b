"""Products of rows with the matrix of their type, and their sums over edges of several types.

If the contribution of an edge depends only on its type and one of its ends, it is computed once for each pair
of a type and a node that occurs, not for each edge. Pairs are numbered type by type, so that the rows of all
pairs of a type are multiplied by its matrix in one product.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.kernels.cpu.rows import take_rows
from onehop.kernels.products import TORCH, libraries
from onehop.ops.aggregate import reduce_rows
from onehop.ops.linear import FORWARD, TO_WEIGHT, library_of
from onehop.ops.recomputed import Needs, Whole, recomputed
from onehop.reference.typed import typed_product as reference


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs (type, node) that occur at one end of edges, ordered by type, then by node.

    Attributes:
        nodes: [P], int64: the node of each pair.
        counts: Number of pairs of each type.
        of_edges: [E], int64: the pair of each edge.
    """

    nodes: Tensor
    counts: tuple[int, ...]
    of_edges: Tensor

    def multiplied(self, x: Tensor, matrices: Tensor, fastest: bool = False) -> Tensor:
        """Return, for each pair, its node's row in ``x``, [N, K], times its type's matrix, [K, M]; [P, M]."""
        return typed_product(x.index_select(0, self.nodes), matrices, self.counts, fastest)


def pairs_of(end: str, nodes: Tensor, edge_type: Tensor, num_nodes: int, num_types: int) -> Pairs:
    """Number the pairs (type, node) at one end of edges.

    Args:
        end: The name of this end, for error messages.
        nodes: [E], int64, on the CPU: the node of each edge at this end.
        edge_type: [E], int64, on the CPU.
        num_nodes: Number of nodes at this end.
        num_types: Number of types.

    Raises:
        ArgumentError: A node or a type is out of range.
    """
    _check_range("relation", edge_type, num_types)
    _check_range(end, nodes, num_nodes)
    pairs, of_edges = torch.unique(edge_type * num_nodes + nodes, return_inverse=True)
    counts = torch.bincount(pairs // max(num_nodes, 1), minlength=num_types)
    return Pairs(pairs % max(num_nodes, 1), tuple(counts.tolist()), of_edges)


def _check_range(name: str, numbers: Tensor, bound: int) -> None:
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < bound:
        raise ArgumentError(f"relations: expected each {name} to be from 0 to {bound - 1}.")


def typed_product(
    rows: Tensor | Sequence[Tensor],
    matrices: Tensor,
    counts: Sequence[int] | None = None,
    fastest: bool = False,
) -> Tensor:
    """Multiply the rows of each type by its matrix; differentiable any number of times.

    Args:
        rows: [N, K], ordered by type; or a tensor [n, K] for each type.
        matrices: [types, K, M], of the same dtype; or [types, H, K, M] for rows of H heads, [N, H * K].
        counts: Number of rows of each type; None means that ``rows`` has a tensor for each type.
        fastest: Whether products may run in another library than torch's own.

    Returns:
        [N, M], or [N, H * M], ordered by type.
    """
    of_heads = matrices if matrices.dim() > 3 else matrices.unsqueeze(1)
    tensors = (rows,) if isinstance(rows, Tensor) else rows
    pieces = Product(None if counts is None else tuple(counts), fastest)
    out: Tensor = recomputed(pieces, of_heads, *tensors)
    return out


def side_by_side(matrices: Tensor, widest: int) -> Tensor:
    """Join the matrices of several narrow heads to block-diagonal ones, which need fewer products.

    Args:
        matrices: [types, H, K, M].
        widest: The maximal number of rows of a joined matrix, unless it has only one head.

    Returns:
        [types, H / h, h * K, h * M]; h divides H.
    """
    types, heads, inputs, outputs = matrices.shape
    most = min(heads, max(1, widest // inputs))
    together = max(each for each in range(1, most + 1) if heads % each == 0)
    apart = matrices.view(types, heads // together, together, inputs, outputs)
    blocks = torch.diag_embed(apart.permute(0, 1, 3, 4, 2), dim1=2, dim2=4)
    return blocks.reshape(types, heads // together, together * inputs, together * outputs)


@dataclass(frozen=True, slots=True)
class TypeGroup:
    """The edges of consecutive types.

    Attributes:
        types: The types.
        counts: Number of pairs (type, destination), for each type.
        nodes: [P], int64: the destination of each pair.
        pairs: The graph from the sources to the pairs.
        ends: The graph from the pairs to the destinations, with one edge for each pair.
    """

    types: slice
    counts: tuple[int, ...]
    nodes: Tensor
    pairs: Graph
    ends: Graph


def consecutive(counts: Sequence[int], most: int | None) -> Iterator[slice]:
    """Yields slices of ``counts`` with one element or a sum of at most ``most``; None means one slice."""
    first = rows = 0
    for number, count in enumerate(counts):
        if number > first and most is not None and rows + count > most:
            yield slice(first, number)
            first, rows = number, 0
        rows += count
    yield slice(first, len(counts))


def typed_edges(
    edge_index: Tensor,
    edge_type: Tensor,
    num_types: int,
    size: tuple[int, int],
    most: int | None = None,
    rows_of_each: bool = False,
) -> tuple[TypeGroup, ...]:
    """Order edges by their types, in groups of types.

    Args:
        edge_index: [2, E], int64, on the CPU: sources in the first row, destinations in the second.
        edge_type: [E], int64, on the CPU: from 0 to ``num_types`` - 1.
        num_types: Number of types, at least 1.
        size: (num_src, num_dst).
        most: The maximal number of pairs (type, destination) in a group, unless it has a single type; None
            means one group.
        rows_of_each: Whether every type has its own source rows; then there are ``num_types`` times as many
            sources, type after type.

    Returns:
        The groups, in the order of their types.

    Raises:
        ArgumentError: A node or a type is out of range, or there are too many pairs.
    """
    (source, target), (num_src, num_dst) = edge_index.unbind(), size
    _check_range("source", source, num_src)
    pairs = pairs_of("destination", target, edge_type, num_dst, num_types)
    if rows_of_each:
        source, num_src = edge_type * num_src + source, num_types * num_src
    ordered = Graph.from_edge_index(torch.stack([source, pairs.of_edges]), size=(num_src, len(pairs.nodes)))
    groups, begin = [], 0
    for types in consecutive(pairs.counts, most):
        counts = pairs.counts[types]
        count = sum(counts)
        nodes, rowptr = pairs.nodes[begin : begin + count], ordered.rowptr[begin : begin + count + 1]
        col = ordered.col[int(rowptr[0]) : int(rowptr[-1])]
        ends = torch.stack([torch.arange(count, device="cpu"), nodes])
        groups.append(
            TypeGroup(
                types,
                counts,
                nodes,
                Graph.from_csr(rowptr - rowptr[0], col, num_src),
                Graph.from_edge_index(ends, size=(count, num_dst)),
            )
        )
        begin += count
    return tuple(groups)


def typed_sum(
    groups: tuple[TypeGroup, ...], x: Tensor, matrices: Tensor, reduce: str, fastest: bool = False
) -> Tensor:
    """For each destination, sum over types the reduced rows of the type's sources times the type's matrix.

    With several groups, the reduced rows are made for one group at a time, and again in the backward pass, so
    that only one group's rows exist at once. Differentiable any number of times.

    Args:
        groups: The edges from :func:`typed_edges`.
        x: [num_src, K], float32 or float64, on the CPU.
        matrices: [types, K, M], of the same dtype.
        reduce: "sum" or "mean".
        fastest: Whether products may run in another library than torch's own.

    Returns:
        [num_dst, M].
    """
    pieces = _Sum(groups, reduce, fastest)
    return pieces.whole(x, matrices) if len(groups) == 1 else recomputed(pieces, x, matrices)


@dataclass(frozen=True, slots=True)
class Product(Whole):
    """The pieces of :func:`typed_product`; the operands are matrices [types, H, K, M] and rows.

    Attributes:
        counts: Number of rows of each type; None means that there is a tensor of rows for each type.
        fastest: Whether products may run in another library than torch's own.
    """

    counts: tuple[int, ...] | None
    fastest: bool

    def whole(self, *operands: Tensor) -> Tensor:
        """Computes the product by torch's own operations."""
        matrices, *rows = operands
        return reference(self._parts(rows), matrices)

    def forward(self, operands: Sequence[Tensor]) -> tuple[Tensor, tuple[()]]:
        """Computes the product."""
        matrices, *rows = operands
        return self._product(self._parts(rows), matrices), ()

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], saved: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Computes the gradients of the matrices and rows that need one."""
        (grad,), (matrices, *rows) = grads, operands
        assert grad is not None
        parts = self._parts(rows)
        of_parts = grad.split([len(part) for part in parts])
        gradients = [self._of_matrices(parts, of_parts, matrices)] if needs[0] else []
        if any(needs[1:]):
            product = self._product(of_parts, matrices.mT)
            of_rows = (product,) if len(rows) == 1 else product.split([len(each) for each in rows])
            gradients += [each for each, needed in zip(of_rows, needs[1:], strict=True) if needed]
        return tuple(gradients)

    def _parts(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        return rows if self.counts is None else rows[0].split(self.counts)

    def _product(self, parts: Sequence[Tensor], matrices: Tensor) -> Tensor:
        """Compute the products, each written to its place, because a concatenation would copy them all."""
        _, heads, inputs, outputs = matrices.shape
        sizes = [len(part) for part in parts]
        out = matrices.new_empty(sum(sizes), heads * outputs)
        for part, of_type, place in zip(parts, matrices.unbind(), out.split(sizes), strict=True):
            run = library_of(FORWARD, len(part), inputs, outputs, out.dtype, self.fastest)
            for rows, matrix, result in zip(_heads(part, heads), of_type, _heads(place, heads), strict=True):
                if run is libraries(FORWARD)[TORCH]:
                    torch.mm(rows, matrix, out=result)
                else:
                    result.copy_(run(rows.contiguous(), matrix.t().contiguous(), None))
        return out

    def _of_matrices(self, parts: Sequence[Tensor], of_parts: Sequence[Tensor], like: Tensor) -> Tensor:
        """Return the gradient of the matrices, from each type's rows and the gradient of its product."""
        _, heads, inputs, outputs = like.shape
        gradient = torch.empty_like(like, memory_format=torch.contiguous_format)
        for part, of_part, of_type in zip(parts, of_parts, gradient.unbind(), strict=True):
            run = library_of(TO_WEIGHT, len(part), outputs, inputs, like.dtype, self.fastest)
            for rows, grad, result in zip(_heads(part, heads), _heads(of_part, heads), of_type, strict=True):
                if run is libraries(TO_WEIGHT)[TORCH]:
                    torch.mm(rows.t(), grad, out=result)
                else:
                    result.copy_(run(rows.contiguous(), grad.contiguous(), None))
        return gradient


def _heads(rows: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Return rows [N, H * K] as [N, K] for each head, as views if possible."""
    return (rows,) if heads == 1 else rows.reshape(len(rows), heads, rows.size(1) // heads).unbind(1)


@dataclass(frozen=True, slots=True)
class _Sum(Whole):
    """The pieces of :func:`typed_sum`; operands are rows [num_src, K] and matrices [types, K, M]."""

    groups: tuple[TypeGroup, ...]
    reduce: str
    fastest: bool

    def whole(self, *operands: Tensor) -> Tensor:
        x, matrices = operands

        def part(group: TypeGroup) -> Tensor:
            reduced = reduce_rows(group.pairs, x, reduce=self.reduce)
            product = typed_product(reduced, matrices[group.types], group.counts, self.fastest)
            return reduce_rows(group.ends, product, reduce="sum")

        return functools.reduce(torch.add, map(part, self.groups))

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], saved: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        (grad,) = grads
        assert grad is not None
        of_x, of_matrices = (
            torch.zeros_like(each, memory_format=torch.contiguous_format) if needed else None
            for each, needed in zip(operands, needs, strict=True)
        )
        for group in self.groups:
            self._add(group, operands, grad, of_x, of_matrices)
        return tuple(each for each in (of_x, of_matrices) if each is not None)

    def _add(
        self,
        group: TypeGroup,
        operands: Sequence[Tensor],
        grad: Tensor,
        of_x: Tensor | None,
        of_matrices: Tensor | None,
    ) -> None:
        """Add a group's part of the gradients; its intermediate tensors are freed before the next group."""
        x, matrices = operands
        needs = of_matrices is not None, of_x is not None
        factors = matrices[group.types].unsqueeze(1), reduce_rows(group.pairs, x, reduce=self.reduce)
        pulled = take_rows(grad, group.nodes)
        gradients = Product(group.counts, self.fastest).gradients(needs, factors, (), pulled)
        del factors, pulled
        if of_matrices is not None:
            of_matrices[group.types] = gradients[0].squeeze(1)
        if of_x is not None:
            shares = group.pairs.inverse_in_degrees(x.dtype) if self.reduce == "mean" else None
            of_x += reduce_rows(group.pairs.transpose(), gradients[-1], src_scale=shares)
