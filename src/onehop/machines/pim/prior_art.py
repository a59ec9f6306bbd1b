"""Plans of earlier work for the same engine: PyGim, SparseP, and the mappings of GraNDe, GNNear and G-NMP.

GraNDe, GNNear and G-NMP have one unit per rank. How PyGim's authors distributed a rank's work to its cores is
known for GraNDe only; for the two others we assume that rows are distributed by number.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from onehop.errors import ArgumentError
from onehop.machines.common.checks import check_integer
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.scheme import suitable_grids
from onehop.machines.pim.search import in_full_ns
from onehop.machines.pim.shapes import Shapes
from onehop.plans.pim import PimPlan

# Properties of PyGim's kernels and host code in every plan: values of one are multiplied, readers fetch each
# byte twice, one tasklet clears and folds, one thread merges into new buffers.
PUBLISHED = PimPlan(
    unit_weights=False, reader="paged", clear="first", fold="serial", merge_threads=1, reuse_buffers=False
)


def published(sp: int, ds: int) -> PimPlan:
    """Return Parallelism Fusion as published, on a grid: CSR, edges balanced over cores and over tasklets."""
    return replace(PUBLISHED, sp=sp, ds=ds)


def grande(config: PimConfig) -> PimPlan:
    """Return GraNDe's mapping on near-bank cores: all cores of a rank hold the rank's block of columns.

    Each core computes all rows for its own few feature columns. The readers are larger, because every core
    streams the whole block.
    """
    return replace(
        PUBLISHED,
        scheme="grande",
        sp=config.ranks,
        ds=max(config.rank_cores),
        core_balance="row",
        reader_bytes=128,
    )


def gnnear(config: PimConfig) -> PimPlan:
    """Return GNNear's mapping on near-bank cores: nodes are spread over modules; a module halves each vector.

    A module has two ranks. GNNear's copies of the nodes with the most edges are omitted.
    """
    halves = 2 if config.ranks % 2 == 0 else 1
    return replace(published(config.ranks // halves, halves), core_balance="row")


def gnmp(
    config: PimConfig, shapes: Shapes, width: int, kernel: Kernel, merge_threads: int = 1
) -> PimPlan | None:
    """Return G-NMP's mapping on near-bank cores: vectors whole in a rank, or cut over all ranks.

    G-NMP chooses by the size of the vectors; this takes the faster of the two. None if neither fits.

    Args:
        config: The machine.
        shapes: The work of each core and tasklet.
        width: Number of feature columns.
        kernel: The dtypes and operations of the cores' kernel.
        merge_threads: Number of the host's threads that merge.
    """
    plans = [
        replace(published(*grid), core_balance="row", merge_threads=merge_threads)
        for grid in ((config.ranks, 1), (1, config.ranks))
    ]
    return _fastest(config, plans, shapes, width, kernel)


def pygim_plans(config: PimConfig, merge_threads: int = 1) -> list[PimPlan]:
    """Return the four plans that PyGim's own tuner considers.

    They have one or two sparse parts, one cluster per rank and CSR; cores are balanced by rows or by edges,
    and tasklets by edges.

    Args:
        config: The machine.
        merge_threads: Number of the host's threads that merge.
    """
    grids = [(sp, config.ranks // sp) for sp in (1, 2) if config.ranks % sp == 0]
    return [
        replace(published(sp, ds), core_balance=balance, merge_threads=merge_threads)
        for sp, ds in grids
        for balance in ("edge", "row")
    ]


def pygim_search(
    config: PimConfig, shapes: Shapes, width: int, kernel: Kernel, merge_threads: int = 1
) -> PimPlan | None:
    """Return the best of :func:`pygim_plans` in full simulation; None if none fits. Arguments: :func:`gnmp`.

    Raises:
        ArgumentError: The width is not an integer of at least 1.
    """
    check_integer("width", width)
    return _fastest(config, pygim_plans(config, merge_threads), shapes, width, kernel)


def sparsep(config: PimConfig, width: int, ranks_each: int) -> PimPlan:
    """Return SparseP's repeated matrix-vector products: COO, edges divided exactly, 12 tasklets.

    Args:
        config: The machine.
        width: Number of feature columns.
        ranks_each: Number of ranks that work on one column; the other ranks work on other columns at the same
            time.

    Raises:
        ArgumentError: The width is not an integer of at least 1, or ``ranks_each`` does not divide
            the ranks.
    """
    check_integer("width", width)
    if type(ranks_each) is not int or ranks_each < 1 or config.ranks % ranks_each:
        raise ArgumentError(
            f"ranks_each: expected a divisor of the {config.ranks} ranks of {config.name}, got "
            f"{ranks_each!r}."
        )
    ds = config.ranks // ranks_each
    return replace(
        PUBLISHED,
        scheme="sparsep",
        sp=1,
        ds=ds,
        format="coo",
        tasklets=min(12, config.core.threads),
        rounds=max(-(-width // ds), 1),
    )


def best_sparsep(
    config: PimConfig, shapes: Shapes, width: int, kernel: Kernel, merge_threads: int = 1
) -> PimPlan | None:
    """Return SparseP's plan with the best number of ranks per column; None if none fits.

    The arguments and errors are the same as for :func:`pygim_search`.
    """
    plans = [
        replace(sparsep(config, width, ranks_each), merge_threads=merge_threads)
        for _, ranks_each in suitable_grids(config)
    ]
    return _fastest(config, plans, shapes, width, kernel)


def _fastest(
    config: PimConfig, plans: Iterable[PimPlan], shapes: Shapes, width: int, kernel: Kernel
) -> PimPlan | None:
    took = {plan: in_full_ns(config, plan, shapes, width, kernel) for plan in plans}
    best = min(took, key=lambda plan: took[plan])
    return best if math.isfinite(took[best]) else None
