"""The edges from which neighbours are drawn, checked and ready for native code."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError, integer


@dataclass(frozen=True, slots=True)
class Relation:
    """Edges from nodes of one type to nodes of another, in compressed sparse rows of destinations.

    Attributes:
        name: The relation's name in error messages.
        rowptr: [num_dst + 1], int64.
        col: [E], int32 or int64: the source of each edge.
        src: Number of the sources' type.
        dst: Number of the destinations' type.
        fan_out: For each hop, how many edges of a row are drawn; -1 means all.
        weight: [E], float64; None means that every edge is equally likely.
        edge_time: [E], int64, ascending in each row; None means no times.
        src_time: [num_src], int64; the times of a row's sources must ascend. None means no times.
    """

    name: str
    rowptr: Tensor
    col: Tensor
    src: int
    dst: int
    fan_out: tuple[int, ...]
    weight: Tensor | None = None
    edge_time: Tensor | None = None
    src_time: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that native code reads."""
        every = (self.rowptr, self.col, self.weight, self.edge_time, self.src_time)
        return tuple(each for each in every if each is not None)


def checked_fan_out(name: str, fan_out: object) -> tuple[int, ...]:
    """Return the numbers of neighbours per hop; raise an ArgumentError unless all are integers >= -1."""
    try:
        return tuple(integer(name, count, -1) for count in fan_out)  # type: ignore[attr-defined]
    except (TypeError, ArgumentError) as error:
        raise ArgumentError(
            f"{name}: expected a list of integers, one for each hop, such as [15, 10] (-1: all neighbours), "
            f"got {fan_out!r}."
        ) from error


def checked_weight(name: str, weight: Tensor, edges: int) -> Tensor:
    """Return [E], float64: the weights of edges; raise an ArgumentError for negative or infinite weights."""
    if weight.dim() != 1 or weight.numel() != edges or weight.is_complex():
        raise ArgumentError(f"{name}: expected [{edges}] numbers, one an edge, got {_describe(weight)}.")
    weight = weight.detach().to(device="cpu", dtype=torch.float64).contiguous()
    if weight.numel() and not (float(weight.min()) >= 0 and math.isfinite(float(weight.max()))):
        raise ArgumentError(
            f"{name}: expected weights that are zero or more, and finite, got {float(weight.min())} to "
            f"{float(weight.max())}."
        )
    return weight


def checked_time(name: str, time: Tensor, count: int, what: str) -> Tensor:
    """Return [count], int64: times of nodes or edges; raise an ArgumentError unless there is one each."""
    if time.dim() != 1 or time.numel() != count or time.dtype.is_floating_point or time.is_complex():
        raise ArgumentError(
            f"{name}: expected [{count}] integers, one {what}, got {_describe(time)}; scale fractions of "
            "seconds up and convert with .long()."
        )
    return time.detach().to(device="cpu", dtype=torch.int64).contiguous()


def native_relation(
    relation: Relation, num_src: int, running: Tensor | None
) -> native.extension.SampledRelation:
    """Return the relation for native code, which reads the tensors; they must stay alive.

    Raises an ArgumentError if a tensor has another dtype, or fewer entries, than native code expects.
    """
    _check(relation, num_src)
    found = native.extension.SampledRelation()
    found.rowptr, found.rows = native.address(relation.rowptr), relation.rowptr.numel() - 1
    found.col, found.edges = native.address(relation.col), relation.col.numel()
    found.cols, found.wide_col = num_src, relation.col.dtype == torch.int64
    found.src_type, found.dst_type = relation.src, relation.dst
    found.fan_out = list(relation.fan_out)
    for name, array in (
        ("weight", relation.weight),
        ("running", running),
        ("edge_time", relation.edge_time),
        ("src_time", relation.src_time),
    ):
        if array is not None:
            setattr(found, name, native.address(array))
    return found


def running_sums(relation: Relation) -> Tensor | None:
    """Return [E], float64: cumulative weights in each row, from its first edge; None without weights."""
    if relation.weight is None:
        return None
    return sums_along_rows(relation.rowptr, relation.weight, relation.name)


def sums_along_rows(rowptr: Tensor, weight: Tensor, name: str) -> Tensor:
    """Return [E], float64: cumulative weights in each row, from [E] of float64; ``rowptr`` is int64.

    Raises an ArgumentError that begins with ``name`` if the rows are damaged.
    """
    edges = weight.numel()
    rowptr = rowptr.clone()  # native code reads the copy that is checked here
    if int(rowptr[0]) != 0 or int(rowptr[-1]) != edges or bool((rowptr.diff() < 0).any()):
        raise ArgumentError(f"{name}: expected rows that ascend from 0 to {edges}; make it again.")
    running = torch.empty(edges, dtype=torch.float64, device="cpu")
    native.extension.running_sums(
        native.address(rowptr),
        rowptr.numel() - 1,
        native.address(weight),
        native.address(running),
        native.threads(),
    )
    return running


def _check(relation: Relation, num_src: int) -> None:
    edges = relation.col.numel()
    for name, array, dtypes, least in (
        ("rowptr", relation.rowptr, (torch.int64,), 1),
        ("col", relation.col, (torch.int32, torch.int64), 0),
        ("weight", relation.weight, (torch.float64,), edges),
        ("edge_time", relation.edge_time, (torch.int64,), edges),
        ("src_time", relation.src_time, (torch.int64,), num_src),
    ):
        if array is None:
            continue
        if array.dtype not in dtypes or not array.is_contiguous() or array.numel() < least:
            raise ArgumentError(
                f"{relation.name}: expected {name} of {least} entries or more, contiguous and of "
                f"{' or '.join(map(str, dtypes))}, got {_describe(array)}."
            )


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {list(tensor.shape)}"
