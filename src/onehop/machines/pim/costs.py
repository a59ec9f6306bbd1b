"""Time of one core's kernel, computed from the work of its tasklets.

A core issues at most one instruction per cycle, a tasklet issues one every ``reissue_cycles``, and a core
serves one transfer at a time. So a kernel takes the longest of three times: all instructions; the busiest
tasklet's instructions at its own issue rate, plus its transfers; all transfers.
"""

from dataclasses import dataclass

import numpy as np

from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.numbers import ITEM_BYTES
from onehop.machines.pim.parts import Arithmetic, Core, Points
from onehop.machines.pim.scheme import padded
from onehop.machines.pim.shapes import WorkCounts
from onehop.plans.pim import PimPlan

# A sequential reader uses two pages of working memory.
READER_PAGES = 2
# The test for a hub: a compare and a branch (assumption), because the host gives hubs the lowest numbers.
_HUB_INSTRUCTIONS = 2


@dataclass(frozen=True, slots=True)
class Kernel:
    """The dtypes and operations that a kernel is compiled for.

    Attributes:
        dtype: Dtype of features and values.
        sums: Dtype of the accumulators.
        multiplies: Whether values are read and multiplied with the features.
        value_bits: Significant bits that a multiply processes.
        compares: Whether the kernel keeps the largest or smallest value instead of a sum; "sums" then means
            these values.
        adds: Whether values are added to features instead of multiplied.
    """

    dtype: str
    sums: str
    multiplies: bool
    value_bits: float = 1.0
    compares: bool = False
    adds: bool = False

    @property
    def item(self) -> int:
        """Bytes of a feature or a value."""
        return ITEM_BYTES[self.dtype]

    @property
    def sum_item(self) -> int:
        """Bytes of a sum."""
        return ITEM_BYTES[self.sums]

    def filled(self, config: PimConfig, width: int) -> int:
        """Return the columns of a row after padding features and sums to the alignment of transfers."""
        return padded(width, min(self.item, self.sum_item), config.core.alignment_bytes)


def interpolate(points: Points, at: float | np.ndarray) -> np.ndarray:
    """Return the curve's value; beyond its ends, the value at the end."""
    places, values = zip(*points, strict=True)
    result: np.ndarray = np.interp(at, places, values)
    return result


def multiply_instructions(costs: Arithmetic, bits: float) -> float:
    """Return the instructions of one multiply by a number with ``bits`` significant bits."""
    steps = costs.significant_bits - 1
    share = min(max(bits - 1, 0), steps) / steps
    return costs.multiply_one + (costs.multiply_full - costs.multiply_one) * share


def arithmetic_instructions(config: PimConfig, kernel: Kernel) -> float:
    """Return the instructions per element of one edge: an add or compare, and a multiply if needed."""
    add = max(config.arithmetic[kernel.sums].accumulate, config.arithmetic[kernel.dtype].accumulate)
    combine = config.functions[kernel.dtype].compare if kernel.compares else add
    if not kernel.multiplies:
        return combine
    if kernel.adds:
        return combine + add
    return combine + multiply_instructions(config.arithmetic[kernel.dtype], kernel.value_bits)


def hub_rows(config: PimConfig, plan: PimPlan, kernel: Kernel, width: int) -> int:
    """Return the number of sources whose features a core keeps in its working memory."""
    return plan.hub_bytes // (kernel.filled(config, width) * kernel.item)


@dataclass(frozen=True, slots=True)
class _Row:
    """Cycles of the transfers of one row, and instructions of writing one row.

    Attributes:
        read: Cycles of reading the row's features.
        write: Cycles of writing the row's sums.
        read_sums: Cycles of reading existing sums that the kernel adds to.
        instructions: Instructions for the row's bounds, its clearing, and starting the write.
    """

    read: float
    write: float
    read_sums: float
    instructions: float


def tasklet_cycles(
    config: PimConfig, plan: PimPlan, kernel: Kernel, counts: WorkCounts, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each tasklet's instructions and transfer cycles, and each core's cycles outside of its edges.

    Returns:
        Instructions and cycles, [parts, cores, tasklets] each; and a core's cycles before and after its
        edges, [parts, cores].
    """
    core, filled_width = config.core, kernel.filled(config, width)
    row = _Row(
        float(interpolate(core.dma_read_cycles, filled_width * kernel.item)),
        float(interpolate(core.dma_write_cycles, filled_width * kernel.sum_item)),
        float(interpolate(core.dma_read_cycles, filled_width * kernel.sum_item)),
        core.row_instructions + width * core.row_element_instructions,
    )
    refill = float(interpolate(core.dma_read_cycles, READER_PAGES * plan.reader_bytes))
    consumed = plan.reader_bytes * (READER_PAGES if plan.reader == "block" else 1)
    index, value = refill * 4 / consumed, refill * kernel.item / consumed

    element = core.element_instructions + arithmetic_instructions(config, kernel)
    instructions = counts.edges * (core.edge_instructions + width * element)
    transfers = counts.edges * (row.read + index + (value if kernel.multiplies else 0.0))
    aside = np.zeros(counts.core_rows.shape)
    if counts.hub_edges is not None:
        instructions = instructions + counts.edges * _HUB_INSTRUCTIONS
        transfers = transfers - counts.hub_edges * row.read
        # Hubs come first, so they are fetched together.
        aside = aside + bulk_cycles(
            core, core.dma_read_cycles, hub_rows(config, plan, kernel, width) * filled_width * kernel.item
        )
    if plan.format == "csr":
        instructions = instructions + counts.rows * row.instructions
        transfers = transfers + counts.rows * (row.write + index)
        return instructions, transfers, aside
    # COO has a third stream, the row numbers.
    transfers = transfers + counts.edges * index
    instructions = instructions + counts.edges * core.coo_edge_instructions
    instructions = instructions + counts.filled * row.instructions
    cleared: float | np.ndarray = core.reissue_cycles * row.instructions + row.write
    if plan.clear == "shared":
        cleared = np.maximum(max(row.instructions, row.write), cleared / counts.tasklets)
    aside = aside + counts.core_rows * cleared
    if plan.thread_balance == "row":
        return instructions, transfers + counts.filled * row.write, aside
    shared, after = _shared_rows(config, plan, kernel, counts, width, row)
    return instructions, transfers + shared, aside + after


def _shared_rows(
    config: PimConfig, plan: PimPlan, kernel: Kernel, counts: WorkCounts, width: int, row: _Row
) -> tuple[np.ndarray, np.ndarray]:
    """Return cycles when tasklets share rows: each one's transfers, and the core's work after them."""
    reissue = config.core.reissue_cycles
    if kernel.compares:
        each = config.functions[kernel.dtype].compare
    else:
        each = config.arithmetic[kernel.sums].accumulate
    adds = width * each
    busy = counts.of_core((counts.edges > 0).astype(np.float64))
    one_by_one = busy * (row.write + row.read_sums + reissue * adds)
    others = np.maximum(counts.filled - 1, 0)
    # First rows are kept aside; last rows are added to the existing sums.
    transfers = others * row.write + (counts.filled > 1) * row.read_sums
    if plan.fold == "serial":
        return transfers, one_by_one
    # Level by level, pairs of tasklets add at the same time. Then each shared row is added to the existing
    # sums; there are at most as many shared rows as tasklets. A level costs as much as a row (assumption).
    levels = np.ceil(np.log2(np.maximum(busy, 1)))
    level = np.maximum(reissue, busy / 2) * (config.core.row_instructions + adds)
    return transfers, levels * level + busy * (row.write + row.read_sums)


def core_cycles(
    config: PimConfig, plan: PimPlan, kernel: Kernel, counts: WorkCounts, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cycles of every core's kernel, and the busy cycles of each tasklet.

    Returns:
        [parts, cores], and [parts, cores, tasklets].
    """
    instructions, transfers, aside = tasklet_cycles(config, plan, kernel, counts, width)
    cycles, alone = bottleneck(config.core, counts, instructions, transfers)
    return aside + cycles, alone


def bottleneck(
    core: Core, counts: WorkCounts, instructions: np.ndarray, transfers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the longest of all instructions, all transfers, and the busiest tasklet's time for both.

    Args:
        core: The core.
        counts: The work; only the number of tasklets that an entry represents is used.
        instructions: [parts, cores, tasklets].
        transfers: [parts, cores, tasklets], cycles.

    Returns:
        [parts, cores], and [parts, cores, tasklets], the cycles that each tasklet would take alone.
    """
    alone = instructions * core.reissue_cycles + transfers
    together = np.maximum(counts.of_core(instructions), counts.of_core(transfers))
    return np.maximum(together, alone.max(axis=-1)), alone


def bulk_cycles(core: Core, curve: Points, size: float) -> float:
    """Return the cycles of moving ``size`` bytes in pieces of at most the largest transfer, by a curve."""
    whole, rest = divmod(size, core.dma_most_bytes)
    cycles = whole * interpolate(curve, core.dma_most_bytes)
    return float(cycles + (interpolate(curve, rest) if rest else 0.0))
