"""Bytes that a plan needs of a core's memories: every array is counted."""

import numpy as np

from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import READER_PAGES, Kernel, hub_rows
from onehop.machines.pim.layout import ITEM_BYTES, stored_width
from onehop.machines.pim.scheme import padded
from onehop.plans.pim import PimPlan


def mram_bytes(
    config: PimConfig,
    plan: PimPlan,
    kernel: Kernel,
    width: int,
    columns: np.ndarray,
    rows: np.ndarray,
    edges: np.ndarray,
) -> np.ndarray:
    """Bytes that a core's bank must hold: results, features, indices, values, with padding.

    Args:
        config: The machine.
        plan: The plan.
        kernel: The kernel.
        width: Feature columns of a pass.
        columns: Rows of features: columns of the part.
        rows: Most rows of results of a core of the cluster.
        edges: Most edges of a core of the cluster.
    """
    item, sum_item = ITEM_BYTES[kernel.dtype], ITEM_BYTES[kernel.sums]
    align = config.core.alignment_bytes
    filled_width = stored_width(plan, width, min(item, sum_item), align)
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
    """Bytes of working memory: features, sums, readers and a stack for every tasklet; and the hubs."""
    item, sum_item = ITEM_BYTES[kernel.dtype], ITEM_BYTES[kernel.sums]
    filled_width = padded(width, min(item, sum_item), config.core.alignment_bytes)
    streams = 2 + kernel.multiplies
    each = filled_width * (item + sum_item)
    each += streams * READER_PAGES * plan.reader_bytes + config.core.stack_bytes
    if plan.format == "coo" and plan.thread_balance == "edge":
        each += filled_width * sum_item
    return plan.tasklets * each + hub_rows(config, plan, kernel, width) * filled_width * item
