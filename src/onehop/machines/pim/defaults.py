"""The plan when only the size of a graph is known."""

from dataclasses import replace

from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.layout import suitable_grids
from onehop.machines.pim.memory import fits
from onehop.machines.pim.operators.rows import Rows
from onehop.machines.pim.shapes import BalancedShapes
from onehop.plans.pim import PimPlan

# A plan that leaves this share of the banks free also fits most graphs, which are not balanced.
_HEADROOM = 0.7


def default_plan(config: PimConfig, size: BalancedShapes, width: int, kernel: Kernel) -> PimPlan:
    """The grid that is fastest for a graph of this size if everything is balanced.

    It streams, so that it runs even if the graph is too unbalanced for the grid.
    """
    tasklets = min(16, config.core.threads)
    plain = PimPlan(tasklets=tasklets, stream=True)
    smaller = config.with_(mram_bytes=int(config.core.mram_bytes * _HEADROOM))
    best, best_ns = None, float("inf")
    for sp, ds in suitable_grids(config):
        plan = replace(plain, sp=sp, ds=ds)
        if fits(smaller, plan, size, width, kernel):
            took = Rows(kernel, width).cost(config, plan, size).total_ns
            if took < best_ns:
                best, best_ns = plan, took
    if best is not None:
        return best
    # Nothing fits at once: the most blocks of columns, and as many rounds as needed.
    sp = max(sp for sp, ds in suitable_grids(config))
    return replace(plain, sp=sp, ds=config.ranks // sp)
