"""Merges of split rows: which program merges which slots, level by level.

The pieces of a split row leave partial results in consecutive slots. If one program merged all of them, a row
with thousands of pieces would keep one multiprocessor busy while the others wait. So each program merges a
group of at most 64 consecutive slots into a slot of the next level; the last level finishes the rows. Each
level is one launch, and most graphs need one level.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# The maximal number of slots that a program merges. It reads up to 32 at a time. Two levels are enough for a
# row of a million edges in pieces of 256.
MOST_SLOTS = 64


class Merge(NamedTuple):
    """A level: the groups of slots that one launch merges, in the order of their rows.

    Attributes:
        row: [groups], int32: the row of each group.
        begin: [groups], int32: the first slot of each group.
        end: [groups], int32: one past the last slot of each group.
        slot: [groups], int32: the slot of the next level into which the group is merged; -1 if the group is
            its whole row, which this level finishes. None in the last level, which finishes all rows.
        slots: Number of slots of the next level. The last slot is for surplus groups, which are empty; no row
            uses it.
    """

    row: Tensor
    begin: Tensor
    end: Tensor
    slot: Tensor | None
    slots: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that own their memory; in the last level, begin and end share it."""
        return (self.row, self.begin) if self.slot is None else (self.row, self.begin, self.end, self.slot)

    def next_slots(self, like: Tensor | None) -> Tensor | None:
        """Return memory for the next level's slots, [slots, ...]; None if there is no next level."""
        return None if like is None or not self.slots else like.new_empty((self.slots, *like.shape[1:]))


def merges_of(row: Tensor, begin: Tensor, slots: int, longest: int) -> tuple[Merge, ...]:
    """Return the levels that merge the slots of split rows; the host does not wait for the device.

    Args:
        row: [split rows], int64, ascending: the rows.
        begin: [split rows + 1], int64: the first slot of each row.
        slots: Number of slots, or an upper bound.
        longest: An estimate of the maximal number of slots of a row. If a row has more, the last level merges
            more than ``MOST_SLOTS`` slots in a program.
    """
    merges = []
    while longest > MOST_SLOTS:
        number = begin.diff()
        groups = (number + MOST_SLOTS - 1) // MOST_SLOTS
        after = groups.cumsum(0)
        # This is the maximal number of groups: each row has less than one group that is not full.
        group = torch.arange(slots // MOST_SLOTS + row.numel(), device=row.device)
        place = torch.searchsorted(after, group, right=True)
        real = place < row.numel()
        place.clamp_(max=row.numel() - 1)
        ends = begin[1:][place]
        first = torch.minimum(begin[place] + (group - (after - groups)[place]) * MOST_SLOTS, ends)
        # If fewer rows have more than one group, other rows pass through the next level, with the same bits.
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
    """Return the positions of the ``count`` largest numbers, in ascending order, [count], int64."""
    if not count:
        return number.new_empty(0)
    return number.sort(descending=True, stable=True).indices[:count].sort().values
