"""PyGim's own tuner: a cost function over tables that its authors measured, and four candidate plans.

PyGim's repository (utils/autotuner.py) has the function for 32-bit integers and CSR; presets.py has the
tables. The function adds four times: features are sent at one rate; the fullest core processes its edges at
the table's rate for the width of its slice; results are received at the table's rate for the nearest block
size; rows are copied, and added for every further sparse part. It ignores a core's rows, tasklets and
transfers.
"""

from collections.abc import Mapping
from dataclasses import replace

from onehop.errors import ArgumentError
from onehop.machines.common.checks import check_integer
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.presets import (
    ADDED_ROWS_PER_MS,
    BROADCAST_GBPS,
    COPIED_ROWS_PER_MS,
    EDGES_PER_MS,
    PULL_GBPS,
    PULL_KB,
)
from onehop.machines.pim.prior_art import pygim_plans
from onehop.machines.pim.shapes import Shapes
from onehop.plans.pim import PimPlan

_ITEM_BYTES = 4
_KERNEL = Kernel("int32", "int32", multiplies=True)


def predictions(config: PimConfig, shapes: Shapes, width: int) -> Mapping[PimPlan, float]:
    """Return the milliseconds that PyGim's cost function predicts for each plan that its tuner considers.

    Args:
        config: The machine; only its ranks and cores are used, because the rates are the paper machine's.
        shapes: The work of each core.
        width: Number of feature columns; every rank must get 4, 8, 16 or 32 of them, because the tables have
            no others.

    Returns:
        Predictions by plan; the tuner takes the plan with the smallest.

    Raises:
        ArgumentError: The width is not an integer of at least 1, or the tables lack the width of a slice.

    Examples:
        >>> from onehop.machines import pim
        >>> from onehop.machines.pim.published_tuner import predictions
        >>> shapes = pim.BalancedShapes(num_src=1000, num_dst=1000, num_edges=50_000)
        >>> times = predictions(pim.preset("upmem_v1a"), shapes, width=256)
        >>> plan = min(times, key=times.get)
        >>> len(times), plan.sp, plan.ds, plan.format
        (4, 1, 32, 'csr')
    """
    check_integer("width", width)
    return {plan: _milliseconds(config, plan, shapes, width) for plan in pygim_plans(config)}


def _milliseconds(config: PimConfig, plan: PimPlan, shapes: Shapes, width: int) -> float:
    slice_width = -(-width // plan.ds)
    if slice_width not in ADDED_ROWS_PER_MS:
        raise ArgumentError(
            f"width: expected slices of {', '.join(map(str, ADDED_ROWS_PER_MS))} columns, which PyGim's "
            f"tables have, got {width} in {plan.ds} dense parts: {slice_width}."
        )
    row_bytes = slice_width * _ITEM_BYTES
    part_cores = config.cores / plan.sp
    rule = cut_rule(replace(plan, tasklets=1), _KERNEL, config.cores // config.ranks)
    counts = shapes.counts(plan.sp, plan.column_cut, rule)
    load = part_cores * float(shapes.part_columns(plan.sp, plan.column_cut).sum()) * row_bytes
    kernel = float(counts.core_edges.max()) / EDGES_PER_MS[slice_width]
    retrieve = 0.0
    for most_rows in counts.core_rows.max(axis=1):
        block = float(most_rows) * row_bytes
        nearest = min(range(len(PULL_KB)), key=lambda at: abs(PULL_KB[at] - block / 1024))
        retrieve += part_cores * block / PULL_GBPS[nearest]
    rows = shapes.num_dst * plan.ds
    merge = rows / COPIED_ROWS_PER_MS[slice_width] + (plan.sp - 1) * rows / ADDED_ROWS_PER_MS[slice_width]
    return (load / BROADCAST_GBPS + retrieve) / 1e6 + kernel + merge
