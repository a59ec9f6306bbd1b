"""Counts the sectors that a GPU's L2 cache fetches from memory for the gathers of a kernel.

Both kernels come from the microbenchmark of "On efficient scaling of GNNs via IO-aware layers" (2026), in its
repository. One warp works on one destination, blocks have four warps, and columns are read in ascending
order. There are two mappings of a destination's work to the lanes of its warp:

- ``neighbour``: lanes take neighbours. The warp reads 32 of them side by side, from the first sector of their
  rows to the last; then it reads the next 32.
- ``feature``: lanes take columns. The warp reads a tile of one neighbour's row at once, 32 loads wide, and
  then the same tile of the next neighbour. After the last neighbour it starts again with the next tile.

The paper and its code leave some points open. The model assumes:

- All resident warps advance in lockstep, one step at a time, in the order of their destinations. A step of
  ``neighbour`` reads one sector of each of 32 rows; a step of ``feature`` reads a tile.
- When a block ends, the next one starts at once and takes its place.
- The cache replaces the least recently used sector of a set; sets are hashed. The cache holds rows of sources
  only: indices, results and the destination's own row are streamed and do not stay in it.
- An L1 cache only joins consecutive loads of one sector; no warp finds there what another warp read.
"""

from dataclasses import dataclass

from onehop.errors import ArgumentError, check_choice
from onehop.graph import Graph
from onehop.machines.common.checks import check, check_integer
from onehop.machines.gpu.device import Gpu
from onehop.machines.native import extension

MAPPINGS = ("neighbour", "feature")
# Lanes of a warp.
_LANES = 32
# Sector numbers are stored in 32 bits.
_MOST_SECTORS = 2**31


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that aggregates each destination with one warp.

    Attributes:
        mapping: What the lanes of a warp take: "neighbour" or "feature".
        load_bytes: Bytes that a lane loads at once: 4, 8 or 16. Ignored for ``neighbour``.
        block_warps: Warps of a block; they start together.
        occupancy: Share of the GPU's warps that are resident, above 0, at most 1. This is an assumption,
            because a kernel's registers determine it.
        passes: How often a warp reads its neighbours; 2 in the paper's figure on reordering.

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
        """Number of rows that a warp reads side by side."""
        return _LANES if self.mapping == "neighbour" else 1

    def tile_bytes(self, row_bytes: int) -> int:
        """Return the bytes of a row that a warp reads before it turns to other rows."""
        return row_bytes if self.mapping == "neighbour" else min(row_bytes, _LANES * self.load_bytes)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Counts of sectors of source rows.

    Attributes:
        fetched: Sectors that the L2 cache fetches from memory; repeated fetches count each time.
        read: Sectors that warps read: every edge reads one row in every pass.
        distinct: Distinct sectors; even an unlimited cache fetches these.
    """

    fetched: int
    read: int
    distinct: int


def gather(graph: Graph, row_bytes: int, kernel: Kernel, gpu: Gpu) -> Gathered:
    """Count the sectors that a GPU fetches for a kernel's gathers, starting with an empty cache.

    Args:
        graph: The graph. Destinations start in node order, and read their edges in the graph's order
            (:func:`onehop.machines.gpu.in_order` sorts edges as the paper does).
        row_bytes: Bytes of a source's row; a multiple of a sector and of the tile that a warp reads at once.
        kernel: The kernel.
        gpu: The GPU.

    Raises:
        ArgumentError: ``row_bytes`` is not such a multiple, or all rows together have more than 2^31 sectors.

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
