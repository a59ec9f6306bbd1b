"""Memory that a plan needs in the cores, and a replacement plan if the plan does not fit."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from onehop.errors import ArgumentError, MachineMemoryError
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import READER_PAGES, Kernel, hub_rows
from onehop.machines.pim.parts import Core
from onehop.machines.pim.scheme import Cluster, layout, schemes, suitable_grids
from onehop.machines.pim.shapes import CutRule, Shapes
from onehop.plans.pim import PimPlan


def round_slices(cluster: Cluster, rounds: int) -> list[tuple[int, int]]:
    """Return the columns of each of a cluster's passes; passes may be empty."""
    step = math.ceil(cluster.width / rounds)
    return [
        (min(cluster.begin + i * step, cluster.end), min(cluster.begin + (i + 1) * step, cluster.end))
        for i in range(rounds)
    ]


def check_rows(config: PimConfig, plan: PimPlan, kernel: Kernel, width: int) -> None:
    """Refuse plans whose rows are longer than one transfer.

    Raises:
        ArgumentError: One transfer cannot move a row, or the plan cannot be placed.
    """
    slices = {each.width: round_slices(each, plan.rounds) for each in layout(config, plan, width).clusters}
    widest = max((end - begin for passes in slices.values() for begin, end in passes), default=0)
    item, most = max(kernel.item, kernel.sum_item), config.core.dma_most_bytes
    row_bytes = kernel.filled(config, widest) * item
    if row_bytes > most:
        raise ArgumentError(
            f"plan: ds={plan.ds} in {plan.rounds} rounds gives rows of {row_bytes} bytes for width "
            f"{width}, and one transfer moves at most {most}: ds * rounds must be at "
            f"least {math.ceil(width * item / most)}."
        )


def stored_width(config: PimConfig, plan: PimPlan, kernel: Kernel, width: int) -> int:
    """Return the columns that a row takes in a bank and in transfers; see :meth:`.Scheme.stored_width`."""
    scheme = schemes.named(plan.scheme)
    return scheme.stored_width(width, min(kernel.item, kernel.sum_item), config.core.alignment_bytes)


def mram_bytes(
    config: PimConfig,
    plan: PimPlan,
    kernel: Kernel,
    width: int,
    columns: np.ndarray,
    rows: np.ndarray,
    edges: np.ndarray,
) -> np.ndarray:
    """Return the bytes that a core's bank must hold: results, features, indices and values, with padding.

    ``width``: columns of a pass; ``columns``: sources of the part; ``rows``, ``edges``: the largest number of
    rows and edges in a core.
    """
    filled_width = stored_width(config, plan, kernel, width)
    dense = rows * filled_width * kernel.sum_item + columns * filled_width * kernel.item
    total: np.ndarray = np.ceil(dense + matrix_bytes(config, plan, kernel, rows, edges)).astype(np.int64)
    return total


def matrix_bytes(
    config: PimConfig, plan: PimPlan, kernel: Kernel, rows: np.ndarray, edges: np.ndarray
) -> np.ndarray:
    """Return the matrix's share of :func:`mram_bytes`: row begins or each edge's row; sources; values."""
    step = max(config.core.alignment_bytes // kernel.item, 2)
    filled = np.ceil(edges / step) * step
    if plan.format == "csr":
        need = 4 * np.ceil((rows + 1) / step) * step + 4 * np.ceil(edges / 2) * 2
    else:
        need = 8 * filled
    total: np.ndarray = np.ceil(need + kernel.item * filled * kernel.multiplies).astype(np.int64)
    return total


def wram_bytes(config: PimConfig, plan: PimPlan, kernel: Kernel, width: int) -> int:
    """Return the bytes of working memory: features, sums, readers and a stack per tasklet; and the hubs."""
    filled_width = kernel.filled(config, width)
    streams = 2 + kernel.multiplies
    each = filled_width * (kernel.item + kernel.sum_item)
    each += streams * READER_PAGES * plan.reader_bytes + config.core.stack_bytes
    if plan.format == "coo" and plan.thread_balance == "edge":
        each += filled_width * kernel.sum_item
    return plan.tasklets * each + hub_rows(config, plan, kernel, width) * filled_width * kernel.item


@dataclass(frozen=True, slots=True)
class Need:
    """Memory that a plan needs in the core that needs most.

    Attributes:
        mram_bytes: Bytes of the core's bank.
        wram_bytes: Bytes of the core's working memory.
        core: The core's number.
        sparse_bytes: Bytes of the matrix that the host sends to all cores together.
    """

    mram_bytes: int
    wram_bytes: int
    core: int
    sparse_bytes: int

    def excess(self, core: Core) -> tuple[str, int, int] | None:
        """Return the memory that is too small, the bytes needed, and a core's bytes; None if both fit."""
        for memory, needed, limit in (
            ("MRAM", self.mram_bytes, core.mram_bytes),
            ("WRAM", self.wram_bytes, core.wram_bytes),
        ):
            if needed > limit:
                return memory, needed, limit
        return None


def cut_rule(plan: PimPlan, kernel: Kernel, cores: int) -> CutRule:
    """Return the rule that cuts the work of a cluster with a given number of cores."""
    return CutRule(
        cores,
        plan.tasklets,
        plan.format == "coo",
        plan.core_balance == "edge",
        plan.thread_balance == "edge",
        max(8 // kernel.item, 1),
    )


def need(config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel) -> Need:
    """Count the bytes that the plan needs."""
    placed = layout(config, plan, width).clusters
    number = plan.sp * plan.block_rounds
    columns = shapes.part_columns(number, plan.column_cut)
    worst, worst_core = -1, 0
    # By rank and block: a rank transfers for each core as much as its fullest core needs.
    sparse = np.zeros((config.ranks, plan.block_rounds), dtype=np.int64)
    seen: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    for cluster in placed:
        if not cluster.width:
            continue
        # The first round is the widest.
        key = (cluster.cores, -(-cluster.width // plan.rounds))
        if key not in seen:
            counts = shapes.counts(number, plan.column_cut, cut_rule(plan, kernel, cluster.cores))
            rows, edges = counts.core_rows.max(axis=1), counts.core_edges.max(axis=1)
            seen[key] = (
                mram_bytes(config, plan, kernel, key[1], columns, rows, edges),
                matrix_bytes(config, plan, kernel, rows, edges),
            )
        whole, matrix = seen[key]
        blocks = slice(cluster.part * plan.block_rounds, (cluster.part + 1) * plan.block_rounds)
        # The largest block that the core holds at a time.
        most = int(whole[blocks].max())
        ranks = slice(cluster.rank, cluster.rank + cluster.ranks)
        sparse[ranks] = np.maximum(sparse[ranks], matrix[blocks])
        if most > worst:
            worst, worst_core = most, cluster.first_core
    widest = max((key[1] for key in seen), default=1)
    sent = int(sparse.sum(axis=1) @ np.array(config.rank_cores))
    return Need(max(worst, 0), wram_bytes(config, plan, kernel, widest), worst_core, sent)


def fits(config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel) -> bool:
    """Return whether a plan can run, memory and all other limits considered."""
    try:
        check_rows(config, plan, kernel, width)
    except ArgumentError:
        return False
    return need(config, plan, shapes, width, kernel).excess(config.core) is None


def check_memory(
    config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel
) -> tuple[PimPlan, Need]:
    """Return the plan and its memory need; a plan that streams may get more rounds.

    Raises:
        MachineMemoryError: The plan does not fit.
    """
    needed = need(config, plan, shapes, width, kernel)
    excess = needed.excess(config.core)
    if excess is None:
        return plan, needed
    if plan.stream:
        for more in _in_rounds(plan, width):
            if fits(config, more, shapes, width, kernel):
                return more, need(config, more, shapes, width, kernel)
    other = plan_that_fits(config, plan, shapes, width, kernel)
    hint = "No plan was found that fits: use a machine with more cores or memory."
    if other is not None:
        hint = f"This plan fits: {other} (plan.to_json(): {other.to_json()})."
    raise MachineMemoryError(needed.core, *excess, other, hint)


def plan_that_fits(
    config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel
) -> PimPlan | None:
    """Return the closest plan that fits: another grid, then fewer tasklets, then more rounds; or None."""
    for candidate in _alternatives(config, plan, width):
        if fits(config, candidate, shapes, width, kernel):
            return candidate
    return None


def _alternatives(config: PimConfig, plan: PimPlan, width: int) -> Iterator[PimPlan]:
    plain = replace(plan, scheme="paf")
    grids = [grid for grid in suitable_grids(config) if plan.scheme == "grande" or grid[0] >= plan.sp]
    for tasklets in (plan.tasklets, 12, 8, 4):
        if tasklets <= plan.tasklets:
            for sp, ds in grids:
                yield replace(plain, sp=sp, ds=ds, tasklets=tasklets)
    for sp, ds in grids:
        yield from _in_rounds(replace(plain, sp=sp, ds=ds), width)


def _in_rounds(plan: PimPlan, width: int) -> Iterator[PimPlan]:
    """Yield the plan in 2, 4, 8, ... rounds in total; plans that split the features come first."""
    most = max(-(-width // plan.ds), 1)
    for doublings in range(1, 13):
        for blocks in range(doublings + 1):
            rounds, block_rounds = 2 ** (doublings - blocks), 2**blocks
            if rounds <= most and plan.sp * block_rounds <= 4096:
                yield replace(
                    plan, rounds=max(rounds, plan.rounds), block_rounds=max(block_rounds, plan.block_rounds)
                )
