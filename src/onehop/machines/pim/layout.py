"""The clusters of a plan, placed on the ranks of a machine."""

import math
from dataclasses import dataclass
from functools import lru_cache

from onehop.errors import ArgumentError
from onehop.machines.pim.config import PimConfig
from onehop.plans.pim import PimPlan

ITEM_BYTES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cores that share one part of the matrix and one part of the features.

    Attributes:
        part: The sparse part.
        begin: First feature column.
        end: One past the last; equal to ``begin`` for a cluster without columns.
        rank: Its first rank.
        ranks: Number of ranks it spans; 1 also where it is only a piece of a rank.
        first_core: Number of its first core in the machine.
        cores: Number of its cores.
    """

    part: int
    begin: int
    end: int
    rank: int
    ranks: int
    first_core: int
    cores: int

    @property
    def width(self) -> int:
        """Feature columns."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Placement:
    """A plan on a machine, for a width.

    Attributes:
        clusters: All of them.
        broadcast: Whether all cores of a rank get the same features, which are then broadcast.
    """

    clusters: tuple[Cluster, ...]
    broadcast: bool


def _rank_starts(cores: int, ranks: int) -> tuple[int, ...]:
    least, more = divmod(cores, ranks)
    return tuple(rank * least + min(rank, more) for rank in range(ranks + 1))


def layout(config: PimConfig, plan: PimPlan, width: int) -> Placement:
    """Places the clusters of a plan.

    Raises:
        ArgumentError: ``sp * ds`` clusters cannot be placed on the machine's ranks, or the plan has more
            tasklets than a core has threads.
    """
    if plan.tasklets > config.core.threads:
        raise ArgumentError(
            f"plan: tasklets must be at most {config.core.threads}, the threads of a core of {config.name}, "
            f"not {plan.tasklets}."
        )
    if plan.scheme == "grande":
        return _grande(config, plan, width)
    number, ranks = plan.sp * plan.ds, config.ranks
    if number % ranks and ranks % number:
        raise ArgumentError(
            f"plan: sp * ds = {plan.sp} * {plan.ds} = {number} clusters cannot be placed on the {ranks} "
            f"ranks of {config.name}: their number must be a multiple or a divisor of {ranks}."
        )
    per_rank = max(number // ranks, 1)
    if per_rank > config.cores // ranks:
        raise ArgumentError(
            f"plan: sp * ds = {number} clusters are more than the {config.cores} cores of {config.name} in "
            f"its {ranks} ranks allow: {config.cores // ranks} clusters a rank."
        )
    return _grid(config.cores, ranks, plan.sp, plan.ds, width)


# Candidates of a search share grids.
@lru_cache(maxsize=256)
def _grid(cores: int, ranks: int, sp: int, ds: int, width: int) -> Placement:
    starts, number = _rank_starts(cores, ranks), sp * ds
    per_rank, spanned = max(number // ranks, 1), max(ranks // number, 1)
    clusters = []
    for index in range(number):
        rank, place = index // per_rank * spanned, index % per_rank
        first, last = starts[rank], starts[rank + spanned]
        least, more = divmod(last - first, per_rank)
        begin, end = columns(width, ds, index % ds)
        first_core = first + place * least + min(place, more)
        clusters.append(Cluster(index // ds, begin, end, rank, spanned, first_core, least + (place < more)))
    return Placement(tuple(clusters), broadcast=per_rank == 1)


def _grande(config: PimConfig, plan: PimPlan, width: int) -> Placement:
    """Makes every core a cluster of its own: all rows of its rank's block, for its few columns."""
    starts = _rank_starts(config.cores, config.ranks)
    most = max(config.rank_cores)
    if plan.sp != config.ranks or plan.ds != most:
        raise ArgumentError(
            f"plan: scheme grande has a sparse part for each rank and a dense part for each core of a rank, "
            f"on {config.name} {config.ranks} x {most}, not {plan.sp} x {plan.ds}."
        )
    clusters = []
    for rank, cores in enumerate(config.rank_cores):
        least, more = divmod(width, cores)
        begin = 0
        for core in range(cores):
            end = begin + least + (core < more)
            clusters.append(Cluster(rank, begin, end, rank, 1, starts[rank] + core, 1))
            begin = end
    return Placement(tuple(clusters), broadcast=False)


def columns(width: int, parts: int, part: int) -> tuple[int, int]:
    """The columns of a part: equal blocks, the last ones smaller or empty."""
    step = math.ceil(width / parts)
    return min(part * step, width), min((part + 1) * step, width)


def padded(width: int, item_bytes: int, alignment: int) -> int:
    """Columns of a row after padding its bytes to the alignment."""
    step = max(alignment // item_bytes, 1)
    return -(-width // step) * step


def stored_width(plan: PimPlan, width: int, item_bytes: int, alignment: int) -> int:
    """Columns that a row takes in a bank and between host and cores.

    Args:
        plan: SparseP's vectors lie one number after another; a row of any other plan is padded.
        width: Feature columns of a pass.
        item_bytes: Bytes of a number.
        alignment: Of transfers in a core, in bytes.
    """
    return width if plan.scheme == "sparsep" else padded(width, item_bytes, alignment)


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
