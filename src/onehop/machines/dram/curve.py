"""The curve: the cost of a burst by the length of runs, interpolated between command-level runs."""

import math
from bisect import bisect_right
from dataclasses import dataclass

from onehop.machines.dram.report import CommandCounts


@dataclass(frozen=True, slots=True)
class BurstCost:
    """Cost of a burst in endless traffic.

    Attributes:
        cycles: Clocks.
        activations: ACT commands.
        misses: Requests that find their bank closed.
    """

    cycles: float
    activations: float
    misses: float

    @classmethod
    def of(cls, counts: CommandCounts) -> "BurstCost":
        """The mean over a run."""
        bursts = counts.reads + counts.writes
        return cls(counts.cycles / bursts, counts.activations / bursts, counts.row_misses / bursts)

    def counts(self, bursts: int, op: str, refi: int, refreshed_ranks: int) -> CommandCounts:
        """Counts for a number of bursts.

        Args:
            bursts: Number of bursts.
            op: ``read`` or ``write``.
            refi: Clocks between refreshes.
            refreshed_ranks: Ranks that are refreshed.
        """
        cycles = round(bursts * self.cycles)
        activations = min(bursts, round(bursts * self.activations))
        misses = min(activations, round(bursts * self.misses))
        return CommandCounts(
            cycles=cycles,
            reads=bursts if op == "read" else 0,
            writes=bursts if op == "write" else 0,
            row_hits=bursts - activations,
            row_misses=misses,
            row_conflicts=activations - misses,
            activations=activations,
            refreshes=cycles // refi * refreshed_ranks,
        )


@dataclass(frozen=True, slots=True)
class Curve:
    """Costs of random runs by their length.

    Attributes:
        lengths: Bursts of a run, growing.
        costs: What a burst costs at each.
    """

    lengths: tuple[int, ...]
    costs: tuple[BurstCost, ...]

    def at(self, length: int) -> BurstCost:
        """The cost at a length: linear in its logarithm between two points, constant beyond the ends."""
        right = bisect_right(self.lengths, length)
        if right == 0 or right == len(self.lengths):
            return self.costs[max(0, right - 1)]
        low, high = self.lengths[right - 1], self.lengths[right]
        share = math.log(length / low) / math.log(high / low)
        before, after = self.costs[right - 1], self.costs[right]
        return BurstCost(
            before.cycles + share * (after.cycles - before.cycles),
            before.activations + share * (after.activations - before.activations),
            before.misses + share * (after.misses - before.misses),
        )
