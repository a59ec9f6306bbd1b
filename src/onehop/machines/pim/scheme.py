"""Schemes of near-bank machines: where a plan's parts of the matrix and of the features are placed.

A scheme is a class with a name; :data:`schemes` has our scheme and prior art's; users can register their own.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

from onehop.errors import ArgumentError
from onehop.machines.common.registry import Registry
from onehop.machines.pim.config import PimConfig
from onehop.plans.pim import SCHEMES, PimPlan

_OURS = tuple(SCHEMES)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cores that share one part of the matrix and one part of the features.

    The cores of a cluster divide the part's rows, or edges, as ``PimPlan.core_balance`` says. Each core reads
    the features of the part's sources, columns ``begin`` up to ``end``.

    Attributes:
        part: Number of the sparse part, from 0 up to ``PimPlan.sp``: a block of the matrix's columns, which
            are sources.
        begin: The first feature column.
        end: One past the last feature column; equal to ``begin`` for a cluster without columns.
        rank: Number of the cluster's first rank.
        ranks: Number of ranks that the cluster spans; also 1 if the cluster is only a part of a rank.
        first_core: Number of the cluster's first core in the machine. Cores are numbered rank after rank;
            ``PimConfig.rank_cores`` has the number of cores in each.
        cores: Number of cores in the cluster, 1 or more.

    Examples:
        >>> from onehop.machines import pim
        >>> config = pim.upmem_v1a()
        >>> config.rank_cores[:2]  # so cores 63 to 125 are in rank 1
        (63, 63)
        >>> pim.Cluster(part=0, begin=16, end=32, rank=1, ranks=1, first_core=63, cores=63).width
        16
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
        """Number of feature columns."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of a plan on a machine, for a width.

    The clusters of each sparse part together have every feature column exactly once. A core belongs to one
    cluster at most; a core without a cluster is idle.

    Attributes:
        clusters: All clusters.
        broadcast: Whether all cores of a rank get the same features, which are then broadcast; False means
            that each core's features are sent to it alone.

    Examples:
        >>> from onehop.machines import pim
        >>> half = pim.Cluster(part=0, begin=0, end=8, rank=0, ranks=1, first_core=0, cores=63)
        >>> rest = pim.Cluster(part=0, begin=8, end=16, rank=1, ranks=1, first_core=63, cores=63)
        >>> placement = pim.Placement(clusters=(half, rest), broadcast=True)
        >>> sum(cluster.cores for cluster in placement.clusters)
        126
    """

    clusters: tuple[Cluster, ...]
    broadcast: bool


class Scheme:
    """A placement scheme; subclasses override what differs.

    Attributes:
        name: The scheme's name in plans.

    Examples:
        >>> from onehop.machines import pim
        >>> @pim.schemes.register
        ... class Packed(pim.Scheme):
        ...     name = "packed"
        ...     def stored_width(self, width, item_bytes, alignment):
        ...         return width  # rows are not padded
        >>> [pim.schemes[name].stored_width(3, 4, 8) for name in ("paf", "packed")]
        [4, 3]
        >>> plan = pim.PimPlan(scheme="packed")
    """

    name: str

    def place(self, config: PimConfig, plan: PimPlan, width: int) -> Placement:
        """Return the clusters of a plan; by default, a grid of ``sp * ds`` equal clusters.

        Args:
            config: The machine.
            plan: The plan.
            width: Number of feature columns.

        Raises:
            ArgumentError: The clusters cannot be placed on the machine's ranks.
        """
        number, ranks = plan.sp * plan.ds, config.ranks
        if number % ranks and ranks % number:
            raise ArgumentError(
                f"plan: sp * ds = {plan.sp} * {plan.ds} = {number} clusters cannot be placed on the {ranks} "
                f"ranks of {config.name}: their number must be a multiple or a divisor of {ranks}."
            )
        per_rank = max(number // ranks, 1)
        if per_rank > config.cores // ranks:
            raise ArgumentError(
                f"plan: sp * ds = {number} clusters are more than the {config.cores} cores of {config.name} "
                f"in its {ranks} ranks allow: {config.cores // ranks} clusters a rank."
            )
        return _grid(config.cores, ranks, plan.sp, plan.ds, width)

    def stored_width(self, width: int, item_bytes: int, alignment: int) -> int:
        """Return the columns that a row takes in a bank and in transfers with the host; padded by default.

        Args:
            width: Number of feature columns in a pass.
            item_bytes: Bytes of a number.
            alignment: Alignment of a core's transfers, in bytes.
        """
        return padded(width, item_bytes, alignment)


schemes = Registry("scheme", Scheme, SCHEMES)


@schemes.register
class _Fusion(Scheme):
    name = "paf"


@schemes.register
class _SparseP(Scheme):
    name = "sparsep"

    def stored_width(self, width: int, item_bytes: int, alignment: int) -> int:
        # SparseP stores its vectors number by number.
        return width


@schemes.register
class _Grande(Scheme):
    """Every core is its own cluster: all rows of its rank's block, for its few columns."""

    name = "grande"

    def place(self, config: PimConfig, plan: PimPlan, width: int) -> Placement:
        starts = rank_starts(config.cores, config.ranks)
        most = max(config.rank_cores)
        if plan.sp != config.ranks or plan.ds != most:
            raise ArgumentError(
                "plan: scheme grande has a sparse part for each rank and a dense part for each core of a "
                f"rank, on {config.name} {config.ranks} x {most}, not {plan.sp} x {plan.ds}."
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


def layout(config: PimConfig, plan: PimPlan, width: int) -> Placement:
    """Place the clusters of a plan by its scheme.

    Raises:
        ArgumentError: The clusters cannot be placed on the machine's ranks, the plan has more tasklets than a
            core has threads, or a user's scheme loses columns.
    """
    if plan.tasklets > config.core.threads:
        raise ArgumentError(
            f"plan: tasklets must be at most {config.core.threads}, the threads of a core of {config.name}, "
            f"not {plan.tasklets}."
        )
    placement = schemes.named(plan.scheme).place(config, plan, width)
    if plan.scheme not in _OURS:
        _check(placement, config, plan, width)
    return placement


def _check(placement: Placement, config: PimConfig, plan: PimPlan, width: int) -> None:
    """Refuse clusters of a user's scheme that the machine does not have, or that lose or repeat columns."""
    if not isinstance(placement, Placement):
        raise ArgumentError(
            f"scheme {plan.scheme!r}: place must return a pim.Placement, not {type(placement).__name__}."
        )
    taken: set[int] = set()
    for cluster in placement.clusters:
        cores = set(range(cluster.first_core, cluster.first_core + cluster.cores))
        wrong = taken & cores or {core for core in cores if not 0 <= core < config.cores}
        if wrong:
            raise ArgumentError(
                f"scheme {plan.scheme!r}: core {min(wrong)} is in two clusters, or none of the "
                f"{config.cores} of {config.name}."
            )
        taken |= cores
        if not 0 <= cluster.part < plan.sp:
            raise ArgumentError(
                f"scheme {plan.scheme!r}: a cluster has sparse part {cluster.part}, and the plan has "
                f"{plan.sp}."
            )
    _check_ranks(placement, config, plan)
    for part in range(plan.sp):
        ranges = sorted((one.begin, one.end) for one in placement.clusters if one.part == part and one.width)
        end = 0
        for begin, last in [*ranges, (width, width)]:
            if begin != end:
                low, high = sorted((begin, end))
                what = "are lost" if begin > end else "are in two clusters"
                what = what if high <= width else "do not exist"
                raise ArgumentError(
                    f"scheme {plan.scheme!r}: of sparse part {part}, columns {low} to {high - 1} of {width} "
                    f"{what}."
                )
            end = last


def rank_starts(cores: int, ranks: int) -> tuple[int, ...]:
    """Return the first core of each rank, and the number of cores; the first ranks may have one core more."""
    least, more = divmod(cores, ranks)
    return tuple(rank * least + min(rank, more) for rank in range(ranks + 1))


# Cached, because candidates of a search share grids.
@lru_cache(maxsize=256)
def _grid(cores: int, ranks: int, sp: int, ds: int, width: int) -> Placement:
    starts, number = rank_starts(cores, ranks), sp * ds
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


def columns(width: int, parts: int, part: int) -> tuple[int, int]:
    """Return the columns of a part: equal blocks, the last ones smaller or empty."""
    step = math.ceil(width / parts)
    return min(part * step, width), min((part + 1) * step, width)


def suitable_grids(config: PimConfig, clusters_per_rank: tuple[int, ...] = (1,)) -> list[tuple[int, int]]:
    """Return all (sp, ds) with the given numbers of clusters per rank, fewest sparse parts first."""
    grids = []
    for per_rank in clusters_per_rank:
        number = config.ranks * per_rank
        if per_rank <= config.cores // config.ranks:
            grids += [(sp, number // sp) for sp in range(1, number + 1) if number % sp == 0]
    return grids


def padded(width: int, item_bytes: int, alignment: int) -> int:
    """Return the columns of a row after padding its bytes to the alignment."""
    step = max(alignment // item_bytes, 1)
    return -(-width // step) * step


def _check_ranks(placement: Placement, config: PimConfig, plan: PimPlan) -> None:
    """Refuse clusters whose ranks are not those of their cores, and broadcasts of different features."""
    starts = rank_starts(config.cores, config.ranks)
    shared: dict[int, tuple[int, int, int]] = {}
    for cluster in placement.clusters:
        if cluster.cores < 1:
            raise ArgumentError(
                f"scheme {plan.scheme!r}: a cluster has {cluster.cores} cores, not 1 or more."
            )
        first, last = (
            bisect_right(starts, core) - 1
            for core in (cluster.first_core, cluster.first_core + cluster.cores - 1)
        )
        if (cluster.rank, cluster.ranks) != (first, last - first + 1):
            raise ArgumentError(
                f"scheme {plan.scheme!r}: the {cluster.cores} cores from {cluster.first_core} are in "
                f"{last - first + 1} rank(s) from {first}, and their cluster has rank={cluster.rank}, "
                f"ranks={cluster.ranks}."
            )
        what = (cluster.part, cluster.begin, cluster.end)
        for rank in range(first, last + 1):
            if placement.broadcast and cluster.width and shared.setdefault(rank, what) != what:
                raise ArgumentError(
                    f"scheme {plan.scheme!r}: the features of rank {rank} are broadcast, and its clusters "
                    "have different ones; set broadcast=False."
                )
