"""A plan on the ranks of a machine, and the limits of its rows."""

import math

from onehop.errors import ArgumentError
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.scheme import Cluster, Placement, padded, placed, schemes
from onehop.plans.pim import PimPlan

ITEM_BYTES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4, "float64": 8}


def layout(config: PimConfig, plan: PimPlan, width: int) -> Placement:
    """Places the clusters of a plan.

    Raises:
        ArgumentError: They cannot be placed on the machine's ranks, the plan has more tasklets than a core
            has threads, or a user's scheme loses columns.
    """
    if plan.tasklets > config.core.threads:
        raise ArgumentError(
            f"plan: tasklets must be at most {config.core.threads}, the threads of a core of {config.name}, "
            f"not {plan.tasklets}."
        )
    return placed(config, plan, width)


def stored_width(plan: PimPlan, width: int, item_bytes: int, alignment: int) -> int:
    """Columns that a row takes in a bank and between host and cores; see :meth:`.Scheme.stored_width`."""
    return schemes.named(plan.scheme).stored_width(width, item_bytes, alignment)


def round_slices(cluster: Cluster, rounds: int) -> list[tuple[int, int]]:
    """The columns of each of a cluster's passes; passes may be empty."""
    step = math.ceil(cluster.width / rounds)
    return [
        (min(cluster.begin + i * step, cluster.end), min(cluster.begin + (i + 1) * step, cluster.end))
        for i in range(rounds)
    ]


def wide_enough(config: PimConfig, plan: PimPlan, width: int, dtype: str, sums: str) -> int:
    """The widest padded row of features that a core handles.

    Raises:
        ArgumentError: One transfer cannot move a row.
    """
    core = config.core
    widest = 0
    alike = {cluster.width: cluster for cluster in layout(config, plan, width).clusters}
    for cluster in alike.values():
        for columns_here in {end - begin for begin, end in round_slices(cluster, plan.rounds)}:
            widest = max(widest, columns_here)
    item = max(ITEM_BYTES[dtype], ITEM_BYTES[sums])
    filled = padded(widest, min(ITEM_BYTES[dtype], ITEM_BYTES[sums]), core.alignment_bytes)
    if filled * item > core.dma_most_bytes:
        needed = math.ceil(width * item / core.dma_most_bytes)
        raise ArgumentError(
            f"plan: ds={plan.ds} in {plan.rounds} rounds gives rows of {filled * item} bytes for width "
            f"{width}, and one transfer moves at most {core.dma_most_bytes}: ds * rounds must be at "
            f"least {needed}."
        )
    return filled


def suitable_grids(config: PimConfig, clusters_per_rank: tuple[int, ...] = (1,)) -> list[tuple[int, int]]:
    """All (sp, ds) with a given number of clusters a rank, fewest sparse parts first."""
    grids = []
    for per_rank in clusters_per_rank:
        number = config.ranks * per_rank
        if per_rank <= config.cores // config.ranks:
            grids += [(sp, number // sp) for sp in range(1, number + 1) if number % sp == 0]
    return grids
