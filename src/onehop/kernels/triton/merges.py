"""Merges of split rows: which program merges which slots, level by level.

The pieces of a split row leave partial results in slots, one after the other. If one program merged all of
them, a row of thousands would keep one multiprocessor busy while the others wait. So at most 64 consecutive
slots are merged at a time, each group by a program of its own, into a slot of the next level; the last level
finishes the rows. Each level is a launch, and most graphs need one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Most slots that a program merges. It reads up to 32 at a time. Two levels are enough for a row of a million
# edges in pieces of 256.
MOST_SLOTS = 64


class Merge(NamedTuple):
    """A level: the groups of slots that one launch merges, in the order of their rows.

    Attributes:
        row: [groups], int32: the row of each group.
        begin: [groups], int32: its first slot.
        end: [groups], int32: one past its last slot.
        slot: [groups], int32: the slot of the next level that it is merged into; -1 where it is all of its
            row, which this level finishes. None in the last level, which finishes all.
        slots: Number of slots of the next level. The last of them is for groups that are left over, which are
            empty: no row has it.
    """

    row: Tensor
    begin: Tensor
    end: Tensor
    slot: Tensor | None
    slots: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that own their memory; in the last level, begins and ends are the same."""
        return (self.row, self.begin) if self.slot is None else (self.row, self.begin, self.end, self.slot)

    def next_slots(self, like: Tensor | None) -> Tensor | None:
        """Room for what goes on, [slots, ...] of the next level; None where there is none."""
        return None if like is None or not self.slots else like.new_empty((self.slots, *like.shape[1:]))


def merges_of(row: Tensor, begin: Tensor, slots: int, longest: int) -> tuple[Merge, ...]:
    """The levels that merge the slots of split rows; nothing waits for the device.

    Args:
        row: [split rows], int64, ascending: the rows.
        begin: [split rows + 1], int64: the first slot of each.
        slots: Number of slots, or more.
        longest: Slots of the row that has most, as far as it is known. If a row has more, the last level
            merges more than ``MOST_SLOTS`` slots in a program.
    """
    merges = []
    while longest > MOST_SLOTS:
        number = begin.diff()
        groups = (number + MOST_SLOTS - 1) // MOST_SLOTS
        after = groups.cumsum(0)
        # As many as there can be: a row has less than one group that is not full.
        group = torch.arange(slots // MOST_SLOTS + row.numel(), device=row.device)
        place = torch.searchsorted(after, group, right=True)
        real = place < row.numel()
        place.clamp_(max=row.numel() - 1)
        ends = begin[1:][place]
        first = torch.minimum(begin[place] + (group - (after - groups)[place]) * MOST_SLOTS, ends)
        # Where fewer rows have more than one group, others pass through the next level, to the same bits.
        going_on = rows_with_most(number, min(slots // (MOST_SLOTS + 1), row.numel()))
        goes_on = torch.zeros_like(row, dtype=torch.bool).index_fill_(0, going_on, True)[place] & real
        slots = slots // MOST_SLOTS + going_on.numel() + 1
        slot = torch.where(goes_on, goes_on.cumsum(0) - 1, -1).masked_fill_(~real, slots - 1)
        last = torch.minimum(first + MOST_SLOTS, ends)
        merges.append(Merge(row[place].int(), first.int(), last.int(), slot.int(), slots))
        row = row[going_on]
        begin = torch.cat([groups.new_zeros(1), groups[going_on].cumsum(0)])
        longest = -(-longest // MOST_SLOTS)
    bounds = begin.int()
    return (*merges, Merge(row.int(), bounds[:-1], bounds[1:], None, 0))


def rows_with_most(number: Tensor, count: int) -> Tensor:
    """Return [count], int64: the places of the largest numbers, in ascending order."""
    if not count:
        return number.new_empty(0)
    return number.sort(descending=True, stable=True).indices[:count].sort().values
