"""Plans of earlier work, for the same engine: PyGim's, SparseP's, and mappings of GraNDe, GNNear and G-NMP.

The last three have a unit for a rank. How PyGim's authors gave a rank's work to its cores is known for GraNDe
alone; for the two others rows are dealt out by number, an assumption.
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

# Properties of PyGim's kernels and host code in every plan: values of one are multiplied by, readers fetch
# each byte twice, one tasklet clears and folds, one thread merges into new buffers.
PUBLISHED = PimPlan(
    unit_weights=False, reader="paged", clear="first", fold="serial", merge_threads=1, reuse_buffers=False
)


def published(sp: int, ds: int) -> PimPlan:
    """Parallelism Fusion as published, on a grid: CSR, edges balanced among cores and among tasklets."""
    return replace(PUBLISHED, sp=sp, ds=ds)


def grande(config: PimConfig) -> PimPlan:
    """GraNDe's mapping on near-bank cores: a block of columns for each rank, which all of its cores hold.

    Each core computes all rows for its own few feature columns. The readers are larger, since every core
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
    """GNNear's mapping on near-bank cores: nodes are dealt out to modules, whose two ranks halve each vector.

    Its copies of the nodes with most edges are left out.
    """
    halves = 2 if config.ranks % 2 == 0 else 1
    return replace(published(config.ranks // halves, halves), core_balance="row")


def gnmp(
    config: PimConfig, shapes: Shapes, width: int, kernel: Kernel, merge_threads: int = 1
) -> PimPlan | None:
    """G-NMP's mapping on near-bank cores: vectors whole in a rank, or cut over all; None if neither fits.

    The faster of the two: it chooses by the size of the vectors.

    Args:
        config: The machine.
        shapes: The work of each core and tasklet.
        width: Feature columns.
        kernel: The types and operations of the cores' kernel.
        merge_threads: Threads of the host that merge.
    """
    plans = [
        replace(published(*grid), core_balance="row", merge_threads=merge_threads)
        for grid in ((config.ranks, 1), (1, config.ranks))
    ]
    return _fastest(config, plans, shapes, width, kernel)


def pygim_plans(config: PimConfig, merge_threads: int = 1) -> list[PimPlan]:
    """The four plans that PyGim's own tuner looks at.

    One or two sparse parts, one cluster a rank, CSR; cores balanced by rows or by edges, tasklets by edges.

    Args:
        config: The machine.
        merge_threads: Threads of the host that merge.
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
    """The best of :func:`pygim_plans` in full simulation; None if none fits. Arguments: see :func:`gnmp`.

    Raises:
        ArgumentError: The width is not an integer of at least 1.
    """
    check_integer("width", width)
    return _fastest(config, pygim_plans(config, merge_threads), shapes, width, kernel)


def sparsep(config: PimConfig, width: int, ranks_each: int) -> PimPlan:
    """SparseP's repeated products of the matrix and a vector: COO, edges shared out exactly, 12 tasklets.

    Args:
        config: The machine.
        width: Feature columns.
        ranks_each: Ranks that work on one column; the rest determines how many columns run at a time.

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
    """SparseP's plan with the best number of ranks for a column; None if none fits.

    It takes the arguments of :func:`pygim_search` and raises its errors.
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
