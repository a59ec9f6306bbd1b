"""Random numbers: the same on all processes while a model is created, and separate ones while it runs."""

import contextlib
import hashlib
from collections.abc import Iterator

import torch
import torch.distributed as dist

from onehop.distributed.agreement import place


def seed_of(seed: int, rank: int) -> int:
    """Return a seed for a process, derived from a seed that all processes share."""
    mixed = hashlib.blake2b(f"{seed} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") >> 1


@contextlib.contextmanager
def same_random(seed: int, group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Make all processes draw the same numbers inside the block; afterwards each continues its own stream.

    Create the model inside the block: its parameters are then the same on every rank, and equal to those that
    ``torch.manual_seed(seed)`` gives in one process. Afterwards, dropout differs between ranks, and is the
    same from run to run. Rank 0 continues as a single process would.

    Args:
        seed: The seed, the same on every rank.
        group: The processes; None means all.

    Raises:
        ConfigurationError: There is no process group.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import same_random
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> with same_random(0):
        ...     model = torch.nn.Linear(4, 2)  # the same parameters on every process
        >>> _ = torch.manual_seed(0)
        >>> torch.equal(model.weight, torch.nn.Linear(4, 2).weight)
        True
        >>> dist.destroy_process_group()
    """
    rank, _ = place(group)
    torch.manual_seed(seed)
    yield
    if rank:
        torch.manual_seed(seed_of(seed, rank))


@contextlib.contextmanager
def own_stream(group: dist.ProcessGroup | None) -> Iterator[None]:
    """Make each process draw its own numbers inside the block, even if all processes used the same seed.

    The numbers follow from one number of torch's stream, so a seed makes them reproducible. Afterwards
    torch's stream continues after that number.
    """
    drawn = int(torch.randint(2**62, (), device="cpu"))
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed_of(drawn, dist.get_rank(group)))
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
