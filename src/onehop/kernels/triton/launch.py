"""Launches of kernels over work items."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.kernels.triton.merges import Merge
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two


class Items(NamedTuple):
    """The tensors of a :class:`Work`, as kernels take them: items, then their edges.

    Without ``col`` the edges are rows, in their order; without ``perm`` this is the caller's order.
    """

    row: Tensor
    begin: Tensor
    end: Tensor
    slot: Tensor | None
    col: Tensor | None
    perm: Tensor | None


def items_of(work: Work, numbered: bool = True) -> Items:
    """All items; ``numbered``: data are read or written for every edge."""
    return Items(work.row, work.begin, work.end, work.slot, work.col, work.perm if numbered else None)


def slots_of(merge: Merge) -> Items:
    """Groups of slots, which are their edges, as items."""
    return Items(merge.row, merge.begin, merge.end, merge.slot, None, None)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Items of similar length, and the tile that a program takes.

    Attributes:
        first: Index of the first item.
        count: Number of items.
        rows: Items in a program.
        edges: Edges of each item that are read at a time.
        split: Whether pieces of rows may be among them.
    """

    first: int
    count: int
    rows: int
    edges: int
    split: bool

    @property
    def programs(self) -> int:
        """Number of programs over the items."""
        return -(-self.count // self.rows)


def buckets(work: Work, plan: TritonPlan) -> list[Bucket]:
    """The launches of a graph's items under a plan; empty buckets are omitted."""
    short = work.items - work.long_items
    found = [
        Bucket(0, work.long_items, 1, plan.block_edges, work.slots > 0),
        Bucket(work.long_items, short, plan.rows_per_program, 1, work.slots > 0),
    ]
    return [bucket for bucket in found if bucket.count]


def fix_up(merge: Merge, plan: TritonPlan) -> Bucket:
    """The launch that merges the groups of a level; those of a row that is not finished are its pieces."""
    return Bucket(0, merge.row.numel(), 1, plan.block_edges, merge.slot is not None)


def features(plan: TritonPlan, width: int) -> int:
    """Columns of a tile."""
    return min(plan.block_features, power_of_two(width))


def options(plan: TritonPlan) -> dict[str, Any]:
    """Compiler options: warps, and that a product and the sum it is added to round once."""
    return {"num_warps": plan.num_warps, "enable_fp_fusion": True}


def rows_of(x: Tensor) -> Tensor:
    """``x`` with contiguous columns; rows may be strided."""
    return x if x.stride(1) == 1 or x.size(1) <= 1 else x.contiguous()


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums over features of a dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@contextlib.contextmanager
def on_device_of(x: Tensor) -> Iterator[None]:
    """Launches go to the current stream of the tensor's device, whatever the current device."""
    if x.device.type != "cuda":
        yield
        return
    with torch.cuda.device(x.device):
        yield
