"""Time and memory of one core's kernel, from what falls to its tasklets.

A core issues one instruction a cycle at most, a tasklet one every ``reissue_cycles``, and it serves one
transfer at a time. So a kernel takes the longest of: all instructions; the busiest tasklet's instructions,
spread out, and its transfers; all transfers.
"""

from dataclasses import dataclass

import numpy as np

from onehop.machines.pim.config import Arithmetic, PimConfig, Points
from onehop.machines.pim.layout import ITEM_BYTES, padded
from onehop.machines.pim.shapes import Counts
from onehop.plans.pim import PimPlan

# A sequential reader keeps two pages, and fetches both whenever it comes to the end of one.
_READER_PAGES = 2


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a kernel is compiled for.

    Attributes:
        dtype: Of features and values.
        sums: Of the accumulators.
        multiplies: Whether values are read and multiplied by.
        value_bits: Significant bits that a multiply works through.
    """

    dtype: str
    sums: str
    multiplies: bool
    value_bits: float = 1.0


def interpolate(points: Points, at: float | np.ndarray) -> np.ndarray:
    """The curve's value; its ends' outside."""
    places, values = zip(*points, strict=True)
    found: np.ndarray = np.interp(at, places, values)
    return found


def multiply_instructions(costs: Arithmetic, bits: float) -> float:
    """Of one multiply by a number of so many significant bits."""
    steps = costs.significant_bits - 1
    share = min(max(bits - 1, 0), steps) / steps
    return costs.multiply_one + (costs.multiply_full - costs.multiply_one) * share


def arithmetic_instructions(config: PimConfig, kernel: Kernel) -> float:
    """Of one element of one edge."""
    accumulate = max(config.arithmetic[kernel.sums].accumulate, config.arithmetic[kernel.dtype].accumulate)
    if not kernel.multiplies:
        return accumulate
    return accumulate + multiply_instructions(config.arithmetic[kernel.dtype], kernel.value_bits)


def tasklet_cycles(
    config: PimConfig, plan: PimPlan, kernel: Kernel, counts: Counts, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Instructions, and cycles of transfers, of every tasklet; and cycles that a core spends one by one.

    Returns:
        [..., cores, tasklets] twice, and [..., cores].
    """
    core = config.core
    item, sum_item = ITEM_BYTES[kernel.dtype], ITEM_BYTES[kernel.sums]
    filled_width = padded(width, min(item, sum_item), core.alignment_bytes)
    read = float(interpolate(core.dma_read_cycles, filled_width * item))
    write = float(interpolate(core.dma_write_cycles, filled_width * sum_item))
    read_sum = float(interpolate(core.dma_read_cycles, filled_width * sum_item))
    refill = float(interpolate(core.dma_read_cycles, _READER_PAGES * plan.reader_bytes))
    index, value = refill / (plan.reader_bytes / 4), refill / (plan.reader_bytes / item)

    element = core.element_instructions + arithmetic_instructions(config, kernel)
    instructions = counts.edges * (core.edge_instructions + width * element)
    transfers = counts.edges * (read + index + (value if kernel.multiplies else 0.0))
    one_by_one = np.zeros(counts.core_rows.shape)
    row = core.row_instructions + width * core.row_element_instructions
    fold = write + read_sum + core.reissue_cycles * width * config.arithmetic[kernel.sums].accumulate
    if plan.format == "csr":
        instructions = instructions + counts.rows * row
        transfers = transfers + counts.rows * (write + index)
        return instructions, transfers, one_by_one
    # The third stream, of rows; results are set to zero by the first tasklet alone.
    transfers = transfers + counts.edges * index
    instructions = instructions + counts.filled * row
    one_by_one = counts.core_rows * (write + core.reissue_cycles * row)
    busy = (counts.edges > 0).sum(axis=-1)
    if plan.thread_balance == "row":
        transfers = transfers + counts.filled * write
    elif plan.sync == "lock_free":
        # First rows are kept aside and folded one by one, last rows are added to what is there.
        transfers = transfers + np.maximum(counts.filled - 1, 0) * write + (counts.filled > 1) * read_sum
        one_by_one = one_by_one + busy * fold
    else:
        # First rows one by one under the lock, all others added to what is there.
        transfers = transfers + np.maximum(counts.filled - 1, 0) * (write + read_sum)
        one_by_one = one_by_one + busy * fold
    return instructions, transfers, one_by_one


def core_cycles(
    config: PimConfig, plan: PimPlan, kernel: Kernel, counts: Counts, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cycles of every core's kernel, and for how many each tasklet is busy.

    Returns:
        [..., cores], and [..., cores, tasklets].
    """
    instructions, transfers, one_by_one = tasklet_cycles(config, plan, kernel, counts, width)
    alone = instructions * config.core.reissue_cycles + transfers
    together = np.maximum(np.maximum(instructions.sum(axis=-1), transfers.sum(axis=-1)), alone.max(axis=-1))
    return one_by_one + together, alone


def mram_bytes(
    config: PimConfig,
    plan: PimPlan,
    kernel: Kernel,
    width: int,
    columns: np.ndarray,
    rows: np.ndarray,
    edges: np.ndarray,
) -> np.ndarray:
    """Bytes that a core's bank must hold: results, features, indices, values; everything filled up.

    Args:
        config: The machine.
        plan: The plan.
        kernel: The kernel.
        width: Feature columns of a pass.
        columns: Rows of features: columns of the part.
        rows: Most rows of results of a core of the cluster.
        edges: Most edges of one.
    """
    item, sum_item = ITEM_BYTES[kernel.dtype], ITEM_BYTES[kernel.sums]
    align = config.core.alignment_bytes
    filled_width = padded(width, min(item, sum_item), align)
    step = max(align // item, 2)
    need = rows * filled_width * sum_item + columns * filled_width * item
    if plan.format == "csr":
        pointers = np.ceil((rows + 1) / step) * step
        need = need + 4 * pointers + 4 * np.ceil(edges / 2) * 2
    else:
        need = need + 8 * np.ceil(edges / step) * step
    if kernel.multiplies:
        need = need + item * np.ceil(edges / step) * step
    found: np.ndarray = np.ceil(need).astype(np.int64)
    return found


def wram_bytes(config: PimConfig, plan: PimPlan, kernel: Kernel, width: int) -> int:
    """Bytes of working memory: a row of features, a row of sums, readers and a stack for every tasklet."""
    item, sum_item = ITEM_BYTES[kernel.dtype], ITEM_BYTES[kernel.sums]
    filled_width = padded(width, min(item, sum_item), config.core.alignment_bytes)
    streams = 2 + kernel.multiplies
    each = filled_width * (item + sum_item) + streams * _READER_PAGES * plan.reader_bytes
    each += config.core.stack_bytes
    if plan.format == "coo" and plan.thread_balance == "edge" and plan.sync == "lock_free":
        each += filled_width * sum_item
    return plan.tasklets * each
