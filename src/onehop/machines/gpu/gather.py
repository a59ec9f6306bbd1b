"""Gathers of a GPU's kernel, counted: the sectors that its second cache fetches from memory.

Both kernels are those of the microbenchmark of "On efficient scaling of GNNs via IO-aware layers" (2026), in
its repository: a warp a destination, blocks of four warps, columns in ascending order, and two mappings of a
destination's work to the lanes of its warp.

- ``neighbour``: lanes take neighbours. 32 of them are read side by side, from the first sector of their rows
  to the last; then the next 32.
- ``feature``: lanes take columns. The warp reads a tile of one neighbour's row at once, 32 loads wide, then
  that of the next neighbour; after the last neighbour it starts over with the next tile.

What the paper and its code do not say is assumed:

- All resident warps advance in lockstep, a step each in a turn, in the order of their destinations. A step of
  ``neighbour`` reads 32 rows sector by sector, one of ``feature`` a tile.
- When a block ends, the next one starts at once and takes its place.
- The cache replaces the least recently used sector of a set; sets are hashed. It holds rows of sources only:
  indices, results and the destination's own row stream through it.
- A first cache joins the loads of one sector that follow each other, and no more: no warp finds there what
  another one read.
"""

from dataclasses import dataclass

from onehop.errors import ArgumentError, check_choice
from onehop.graph import Graph
from onehop.machines.common.checks import check, check_integer
from onehop.machines.gpu.device import Gpu
from onehop.machines.native import extension

MAPPINGS = ("neighbour", "feature")
# Of a warp.
_LANES = 32
# Numbers of sectors are kept in 32 bits.
_MOST_SECTORS = 2**31


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that aggregates with a warp a destination.

    Attributes:
        mapping: What the lanes of a warp take: "neighbour" or "feature".
        load_bytes: Bytes that a lane loads at once: 4, 8 or 16. Ignored for ``neighbour``.
        block_warps: Warps of a block, which start together.
        occupancy: Share of the GPU's warps that are resident, above 0, at most 1. An assumption: a kernel's
            registers decide it.
        passes: Times that a warp goes through its neighbours; 2 in the paper's picture of reordering.

    Raises:
        ArgumentError: A value is out of range.
    """

    mapping: str
    load_bytes: int = 16
    block_warps: int = 4
    occupancy: float = 1.0
    passes: int = 1

    def __post_init__(self) -> None:
        check(self, error=ArgumentError)
        check_choice("mapping", self.mapping, MAPPINGS)
        if self.load_bytes not in (4, 8, 16):
            raise ArgumentError(f"load_bytes: expected 4, 8 or 16, got {self.load_bytes}.")
        if self.occupancy > 1:
            raise ArgumentError(f"occupancy: expected at most 1, got {self.occupancy}.")

    @property
    def lanes(self) -> int:
        """Rows that a warp reads side by side."""
        return _LANES if self.mapping == "neighbour" else 1

    def tile_bytes(self, row_bytes: int) -> int:
        """Bytes of a row that a warp reads before it turns to other rows."""
        return row_bytes if self.mapping == "neighbour" else min(row_bytes, _LANES * self.load_bytes)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Sectors of sources' rows.

    Attributes:
        fetched: Those that the second cache fetches from memory, each as often as it does.
        read: Those that warps read: every edge reads a row, in every pass.
        distinct: Different ones, which even an unlimited cache fetches.
    """

    fetched: int
    read: int
    distinct: int


def gather(graph: Graph, row_bytes: int, kernel: Kernel, gpu: Gpu) -> Gathered:
    """Counts the sectors that a GPU fetches for a kernel's gathers, beginning with an empty cache.

    Args:
        graph: The graph; destinations start in the order of their numbers, and read their edges in the order
            in which the graph has them (:func:`onehop.machines.gpu.in_order` sorts them as the paper does).
        row_bytes: Bytes of a source's row, a multiple of the sector's, and of what a warp reads at once.
        kernel: The kernel.
        gpu: The GPU.

    Raises:
        ArgumentError: ``row_bytes`` is no such multiple, or rows have more than 2^31 sectors together.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import gpu
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> kernel = gpu.Kernel("neighbour")
        >>> sectors = gpu.gather(graph, 512, kernel, gpu.load("a100_80gb"))
        >>> sectors.read, sectors.fetched  # row 0 is read twice, and fetched once
        (48, 32)
    """
    check_integer("row_bytes", row_bytes)
    tile_bytes = kernel.tile_bytes(row_bytes)
    for what, size in (("sector", gpu.sector_bytes), ("tile that a warp reads at once", tile_bytes)):
        if row_bytes % size:
            raise ArgumentError(f"row_bytes: expected a multiple of {size}, the {what}, got {row_bytes}.")
    sectors = row_bytes // gpu.sector_bytes
    if graph.num_src * sectors > _MOST_SECTORS:
        raise ArgumentError(
            f"row_bytes: expected at most 2^31 sectors in all rows, got {graph.num_src} rows of {sectors}."
        )
    room = gpu.l2_bytes // gpu.sector_bytes
    ways = min(gpu.l2_ways, max(room, 1))
    gathers = extension.GpuKernel()
    gathers.resident = max(int(gpu.warps * kernel.occupancy) // kernel.block_warps, 1)
    gathers.block_warps = kernel.block_warps
    gathers.sectors, gathers.tile = sectors, tile_bytes // gpu.sector_bytes
    gathers.lanes, gathers.passes = kernel.lanes, kernel.passes
    rowptr, col = graph.rowptr.data_ptr(), graph.col.data_ptr()
    fetched = extension.gpu_missing_sectors(rowptr, col, graph.num_dst, gathers, room // ways, ways)
    return Gathered(fetched, graph.num_edges * sectors * kernel.passes, len(graph.col.unique()) * sectors)
