"""pyg-lib's operators for products by type, softmax of segments, sorts, and pairs of gathered rows.

PyG's own layers seldom call them: ``HeteroLinear``, ``RGCNConv``, ``softmax`` and ``index_sort`` run on other
operators of onehop, and ``HeteroDictLinear`` multiplies type by type, which is as fast. These operators are
for programs that call ``torch.ops.pyg``.
"""

import operator
from collections.abc import Sequence

from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import metis as partition
from onehop.integrations.pyg.operators import Operator
from onehop.integrations.torch.segments import graph_of_bounds
from onehop.ops import edge_softmax
from onehop.ops.typed import typed_product

_MATRIX = 2
_SAMPLED = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


def segment_matmul(input: Tensor, ptr: Tensor, other: Tensor) -> Tensor:
    """Multiplies each segment of rows by its matrix.

    Args:
        input: [N, K].
        ptr: [B + 1], integers: the begin of each segment, and the end of the last one.
        other: [B, K, M], of the same dtype.

    Returns:
        [N, M], differentiable any number of times.

    Raises:
        ArgumentError: A shape or dtype does not fit.
    """
    fits = input.dim() == _MATRIX and other.dim() == 1 + _MATRIX and ptr.numel() == other.size(0) + 1
    if not fits or input.size(1) != other.size(1) or input.dtype != other.dtype:
        raise ArgumentError(
            "input, ptr, other: expected [N, K], [B + 1] and [B, K, M] of one dtype, got "
            f"{list(input.shape)}, {list(ptr.shape)} and {list(other.shape)} of {input.dtype} and "
            f"{other.dtype}."
        )
    counts = ptr.diff().tolist()
    if int(ptr[0]) != 0 or min(counts, default=0) < 0 or sum(counts) != input.size(0):
        raise ArgumentError(f"ptr: expected numbers that ascend from 0 to {input.size(0)}.")
    return typed_product(input, other, counts)


def grouped_matmul(input: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    """Multiplies each matrix of ``input``, [N_i, K_i], by the matrix of ``other``, [K_i, M_i], at its place.

    Raises:
        ArgumentError: The two lists differ in length, or an entry is not a matrix.
    """
    matrices = [*input, *other]
    if len(input) != len(other) or any(matrix.dim() != _MATRIX for matrix in matrices):
        raise ArgumentError(
            f"input, other: expected as many matrices of each, got {len(input)} and {len(other)} tensors of "
            f"shapes {[list(matrix.shape) for matrix in matrices]}."
        )
    return [a @ b for a, b in zip(input, other, strict=True)]


def softmax_csr(src: Tensor, ptr: Tensor, dim: int = 0) -> Tensor:
    """Computes the softmax over each segment.

    Args:
        src: A tensor of any shape, float32, float64, bfloat16 or float16, on the CPU.
        ptr: [segments + 1], integers: the begin of each segment along ``dim``, and the end of the last one.
        dim: The dimension along which the segments lie.

    Raises:
        ArgumentError: ``ptr`` does not ascend from 0 to the size of ``dim``.
    """
    if src.numel() == 0:
        return src.clone()
    rows = src.movedim(dim, 0)
    graph = graph_of_bounds(ptr, rows.size(0))
    if graph is None:
        raise ArgumentError(f"ptr: expected numbers that ascend from 0 to {rows.size(0)}, the size of {dim}.")
    return edge_softmax(graph, rows.flatten(1) if rows.dim() > 1 else rows).view_as(rows).movedim(0, dim)


def index_sort(indices: Tensor, max: int | None = None) -> tuple[Tensor, Tensor]:
    """Sorts non-negative integers; returns the sorted integers and their places in ``indices``."""
    values, places = indices.sort(stable=True)
    return values, places


def sampled_op(
    left: Tensor, right: Tensor, left_index: Tensor | None, right_index: Tensor | None, op: str
) -> Tensor:
    """Computes ``left[left_index] op right[right_index]``; an index of None means all rows in order.

    Raises:
        ArgumentError: ``op`` is not add, sub, mul or div, or a tensor is not a matrix.
    """
    if op not in _SAMPLED or left.dim() != _MATRIX or right.dim() != _MATRIX:
        raise ArgumentError(
            f"left, right, op: expected two matrices and one of {', '.join(_SAMPLED)}, got shapes "
            f"{list(left.shape)} and {list(right.shape)} and {op!r}."
        )
    rows = left if left_index is None else left.index_select(0, left_index)
    others = right if right_index is None else right.index_select(0, right_index)
    result: Tensor = _SAMPLED[op](rows, others)
    return result


def metis(
    rowptr: Tensor,
    col: Tensor,
    num_partitions: int,
    node_weight: Tensor | None = None,
    edge_weight: Tensor | None = None,
    recursive: bool = False,
) -> Tensor:
    """Divides the nodes of a symmetric graph by METIS, through pymetis.

    Args:
        rowptr: [N + 1], integers.
        col: [E], integers.
        num_partitions: Number of parts.
        node_weight: [N], integers: the work of each node; None means 1.
        edge_weight: Must be None.
        recursive: Must be False.

    Returns:
        [N], int64: the part of each node.

    Raises:
        ArgumentError: ``edge_weight`` or ``recursive`` is given.
        ConfigurationError: pymetis is not installed.
    """
    if edge_weight is not None or recursive:
        raise ArgumentError(
            "edge_weight, recursive: parts are found k ways, over edges of weight 1; omit them."
        )
    partition.require("torch.ops.pyg.metis", instead="onehop.distributed.partition(graph, parts)")
    return partition.parts_of(rowptr, col, num_partitions, node_weight)


# The key of functions made of operators that have gradients or need none.
_COMPOSED = "CompositeImplicitAutograd"
OPERATORS = (
    Operator("segment_matmul(Tensor input, Tensor ptr, Tensor other) -> Tensor", segment_matmul, _COMPOSED),
    Operator("grouped_matmul(Tensor[] input, Tensor[] other) -> Tensor[]", grouped_matmul, _COMPOSED),
    Operator("softmax_csr(Tensor src, Tensor ptr, int dim=0) -> Tensor", softmax_csr, _COMPOSED),
    Operator("index_sort(Tensor indices, int? max = None) -> (Tensor, Tensor)", index_sort, _COMPOSED),
    Operator(
        "sampled_op(Tensor left, Tensor right, Tensor? left_index, Tensor? right_index, str op) -> Tensor",
        sampled_op,
        _COMPOSED,
    ),
    Operator(
        "metis(Tensor rowptr, Tensor col, int num_partitions, Tensor? node_weight = None, "
        "Tensor? edge_weight = None, bool recursive = False) -> Tensor",
        metis,
    ),
)
"""The operators, with pyg-lib's schemas."""
