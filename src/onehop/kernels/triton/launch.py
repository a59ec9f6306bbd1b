"""The launcher of kernels over the items of a graph, and over the slots of its split rows."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.kernels.triton.merges import Merge
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two

# Registers of one NVIDIA multiprocessor; with 128 registers per thread, 16 warps fit.
_REGISTERS = 65_536
_MOST = 128
_WARP = 32


class Items(NamedTuple):
    """The tensors of a :class:`Work` or a :class:`Merge` in the form for kernels: items, then their edges.

    If ``slot`` is None, all items are whole rows. If ``col`` is None, edge e reads row e; if ``perm`` is
    None, edges are in the caller's order.
    """

    row: Tensor
    begin: Tensor
    end: Tensor
    slot: Tensor | None
    col: Tensor | None
    perm: Tensor | None


def items_of(over: Work | Merge, numbered: bool = True) -> Items:
    """Return all items of a graph, or the groups of a level of merges, whose edges are slots.

    Args:
        over: The graph's work, or a level of its merges.
        numbered: Whether data are read or written for every edge.
    """
    if isinstance(over, Merge):
        return Items(over.row, over.begin, over.end, over.slot, None, None)
    slot = over.slot if over.slots else None
    return Items(over.row, over.begin, over.end, slot, over.col, over.perm if numbered else None)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Items of similar length, and the size of a program's tile.

    Attributes:
        first: Index of the first item.
        count: Number of items.
        rows: Number of items in a program.
        edges: Number of edges of each item that are read at a time.
    """

    first: int
    count: int
    rows: int
    edges: int

    @property
    def programs(self) -> int:
        """Number of programs over the items."""
        return -(-self.count // self.rows)


def buckets(over: Work | Merge, plan: TritonPlan) -> list[Bucket]:
    """Return the launches over a graph's items, or over the groups of a level; empty buckets are omitted."""
    if isinstance(over, Merge):
        return [Bucket(0, over.row.numel(), 1, plan.block_edges)]
    short = over.items - over.long_items
    launches = [
        Bucket(0, over.long_items, 1, plan.block_edges),
        Bucket(over.long_items, short, plan.rows_per_program, 1),
    ]
    return [bucket for bucket in launches if bucket.count]


def sweep(
    kernel: Any,
    over: Work | Merge,
    plan: TritonPlan,
    tensors: Sequence[Tensor | None],
    width: int,
    tiles: int | None = None,
    numbered: bool = True,
    **constants: int,
) -> None:
    """Runs a kernel over all items of a graph, or over the slots that a level merges.

    Besides ``constants``, the kernel's compile-time constants are those of :func:`launch`, WIDTH, FEATURES
    (columns of a tile), and STAGES (tiles in flight).

    Args:
        kernel: The kernel; see :func:`launch`.
        over: The graph's work, or a level of its merges.
        plan: The kernels' parameters.
        tensors: Further arguments.
        width: WIDTH, which the plan divides into tiles.
        tiles: Number of programs for each tile of items; None means one for every FEATURES of WIDTH columns.
        numbered: Whether the kernel reads or writes data for every edge.
        constants: Compile-time constants of this kernel.
    """
    tile = features(plan, width)
    settings = {"WIDTH": width, "FEATURES": tile, "STAGES": plan.num_stages, **constants, **options(plan)}
    items = items_of(over, numbered)
    for bucket in buckets(over, plan):
        launch(kernel, bucket, items, tensors, -(-width // tile) if tiles is None else tiles, **settings)


def launch(
    kernel: Any,
    bucket: Bucket,
    items: Items,
    tensors: Sequence[Tensor | None],
    tiles: int,
    **settings: int,
) -> None:
    """Launches a kernel over a bucket, on the current stream of the items' device.

    The kernel takes the items, ``tensors``, the number of the bucket's first item and its count of items, and
    the compile-time constants ROWS and EDGES.

    Args:
        kernel: The kernel.
        bucket: The items of the launch, and the rows and edges of a program.
        items: All items.
        tensors: Further arguments.
        tiles: Number of programs for each tile of items, that is, of tiles of columns or heads.
        settings: Compile-time constants of the kernel, and options of the compiler.
    """
    with on_device_of(items.row):
        kernel[(bucket.programs, tiles)](
            items, *tensors, bucket.first, bucket.count, ROWS=bucket.rows, EDGES=bucket.edges, **settings
        )


def features(plan: TritonPlan, width: int) -> int:
    """Return the number of columns of a tile."""
    return min(plan.block_features, power_of_two(width))


def options(plan: TritonPlan) -> dict[str, Any]:
    """Return compiler options: the warps, and fused multiply-add, which rounds once."""
    return {"num_warps": plan.num_warps, "enable_fp_fusion": True}


def bounded(plan: TritonPlan) -> dict[str, Any]:
    """Return compiler options of attention kernels: also the maximal number of registers of a thread.

    By default, NVIDIA's assembler spills a register or two to reach 32 or 48, although more would not hurt.
    AMD's compiler has no such option.
    """
    if torch.version.hip is not None:
        return options(plan)
    return {**options(plan), "maxnreg": min(_MOST, _REGISTERS // (_WARP * plan.num_warps))}


def rows_of(x: Tensor) -> Tensor:
    """Return ``x`` with contiguous columns; rows may be strided."""
    return x if x.stride(1) == 1 or x.size(1) <= 1 else x.contiguous()


def packed(x: Tensor | None) -> Tensor | None:
    """Return a contiguous copy of ``x``, or ``x`` itself if it is contiguous or None."""
    return None if x is None else x.contiguous()


@contextlib.contextmanager
def on_device_of(x: Tensor) -> Iterator[None]:
    """Make launches use the current stream of the tensor's device, even if another device is current."""
    if x.device.type != "cuda":
        yield
        return
    with torch.cuda.device(x.device):
        yield
