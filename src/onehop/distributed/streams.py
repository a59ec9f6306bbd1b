"""Random numbers: the same on all processes while a model is made, and each process's own afterwards."""

import contextlib
import hashlib
from collections.abc import Iterator

import torch
import torch.distributed as dist

from onehop.distributed.agreement import place


def seed_of(seed: int, rank: int) -> int:
    """A seed for a process, from one that all may share."""
    mixed = hashlib.blake2b(f"{seed} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") >> 1


@contextlib.contextmanager
def same_random(seed: int, group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Inside the block, all processes draw the same numbers; after it, each goes on with its own.

    Make the model inside: its parameters are then the same on every rank, those that
    ``torch.manual_seed(seed)`` gives in one process. Dropout afterwards is drawn on each rank for itself, and
    the same from run to run. Rank 0 goes on as one process would.

    Args:
        seed: The same on every rank.
        group: The processes; None means all.

    Raises:
        ConfigurationError: There is no process group.
    """
    rank, _ = place(group)
    torch.manual_seed(seed)
    yield
    if rank:
        torch.manual_seed(seed_of(seed, rank))
