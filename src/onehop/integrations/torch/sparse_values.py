"""Operations around a sparse product: the sum of repeated entries, and the softmax of rows or columns.

Each function has the arguments of torch's kernel for COO matrices, and returns None where that has to run.
"""

import math

import torch
from torch import Tensor

from onehop import thresholds
from onehop.calls import EdgeSoftmax, EdgeSoftmaxGrad
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.edge_columns import EdgeColumns
from onehop.integrations.torch.matrix_edges import graph_of, recognised
from onehop.integrations.torch.served import Served
from onehop.ops.edge_softmax import EDGE_SOFTMAX
from onehop.ops.integers import Integers
from onehop.ops.library import run

_DTYPES = (torch.float32, torch.float64)


def coalesce(matrix: Tensor) -> Tensor | None:
    """The matrix, or vector, with ascending entries, and the sums of the values of repeated ones."""
    if not _suits(matrix, dims=(1, 2)):
        return None
    distinct = _distinct(matrix._indices())
    if distinct is None:
        return None
    indices, place = distinct
    values = torch.zeros(indices.size(1), dtype=matrix.dtype, device="cpu")
    return _like(matrix, indices, values.index_add_(0, place, matrix._values()))


def _distinct(indices: Tensor) -> tuple[Tensor, Tensor] | None:
    """The distinct columns of [1 or 2, E], ascending, and which of them each column is.

    None if a number is negative or above 2^31, or if another thread writes to them.
    """
    if indices.size(0) == 1:
        numbers = Integers(indices[0]).unique(counts=False)
        return None if numbers is None else (numbers[0].unsqueeze(0), numbers[1])
    entries = EdgeColumns(indices)
    if not entries.are_valid:
        return None
    try:
        ordered = entries.sorted(numbered=True)
    except RuntimeError:  # another thread wrote to them
        return None
    return ordered.edge_index(once=True), ordered.inverse


def softmax(matrix: Tensor, along: int) -> Tensor | None:
    """``torch.sparse.softmax(matrix, along)``, whose result is coalesced."""
    summed = coalesce(matrix) if _suits(matrix) and not matrix.is_coalesced() else matrix
    graph = None if summed is None else _graph_along(summed, along)
    if summed is None or graph is None:
        return None
    matrix = summed
    scores = matrix._values().unsqueeze(1)
    call = EdgeSoftmax(
        scores=scores, graph=graph.number, sources=graph.num_src, rows=graph.num_dst, backend=""
    )
    shares: Tensor = EDGE_SOFTMAX(call, graph)
    return _like(matrix, matrix._indices().clone(), shares.squeeze(1))


def softmax_grad(grad: Tensor, out: Tensor, along: int) -> Tensor | None:
    """The gradient to the matrix of :func:`softmax`, whose result is ``out``."""
    # With a dimension that is counted from the end, torch's gradient is another number: only its code has it.
    graph = None if along < 0 else _graph_along(out, along)
    if graph is None or not _suits(grad) or not torch.equal(grad._indices(), out._indices()):
        return None
    call = EdgeSoftmaxGrad(
        grad=grad._values().unsqueeze(1),
        softmax=out._values().unsqueeze(1),
        graph=graph.number,
        sources=graph.num_src,
        rows=graph.num_dst,
        backend="",
    )
    to_scores: Tensor = run(call, graph)
    return _like(out, out._indices().clone(), to_scores.squeeze(1))


def log_softmax(matrix: Tensor, along: int) -> Tensor | None:
    """``torch.sparse.log_softmax(matrix, along)``, whose result is coalesced."""
    summed = coalesce(matrix) if _suits(matrix) and not matrix.is_coalesced() else matrix
    if summed is None or not _suits(summed):
        return None
    rows, count = _rows_along(summed, along)
    scores = summed._values()
    largest = scores.new_full((count,), -math.inf).scatter_reduce_(0, rows, scores, "amax")
    total = scores.new_zeros(count).index_add_(0, rows, (scores - largest[rows]).exp_())
    return _like(summed, summed._indices().clone(), scores - (largest + total.log_())[rows])


def log_softmax_grad(grad: Tensor, out: Tensor, along: int) -> Tensor | None:
    """The gradient to the matrix of :func:`log_softmax`, whose result is ``out``."""
    # As in softmax_grad, torch's gradient along a dimension that is counted from the end is another number.
    if along < 0 or not _suits(out) or not _suits(grad) or not torch.equal(grad._indices(), out._indices()):
        return None
    rows, count = _rows_along(out, along)
    to_scores = grad._values()
    total = to_scores.new_zeros(count).index_add_(0, rows, to_scores)
    return _like(out, out._indices().clone(), to_scores - out._values().exp() * total[rows])


def _rows_along(matrix: Tensor, along: int) -> tuple[Tensor, int]:
    """The row of each entry, [E], and the number of rows; with dimension 0, the columns."""
    end = 1 - along % 2
    return matrix._indices()[end], matrix.size(end)


def _suits(matrix: Tensor, dims: tuple[int, ...] = (2,)) -> bool:
    return (
        matrix.layout is torch.sparse_coo
        and matrix.dtype in _DTYPES
        and matrix.dim() in dims
        and matrix.dense_dim() == 0
        and matrix._nnz() >= max(thresholds.now.index_entries, 2)
        and not matrix.is_inference()
    )


def _graph_along(matrix: Tensor, along: int) -> Graph | None:
    """The graph whose destinations are the rows of a coalesced matrix, or with dimension 0 its columns."""
    if not _suits(matrix) or not matrix.is_coalesced():
        return None
    try:
        return graph_of(matrix, recognised(matrix), turned=along % 2 == 0)
    except ArgumentError:
        return None


def _like(matrix: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(
        indices, values, matrix.shape, device="cpu", is_coalesced=True, check_invariants=False
    )


SERVED = {
    "_coalesce": Served(coalesce, "coalesce"),
    "_sparse_softmax": Served(softmax, "sparse softmax"),
    "_sparse_softmax_backward_data": Served(softmax_grad, "sparse softmax backward"),
    "_sparse_log_softmax": Served(log_softmax, "sparse log_softmax"),
    "_sparse_log_softmax_backward_data": Served(log_softmax_grad, "sparse log_softmax backward"),
}
"""By the operator's name, at COO's dispatch key."""
