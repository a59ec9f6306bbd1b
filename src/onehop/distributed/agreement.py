"""Raising an error of one process in all processes, and naming lost processes in errors."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed.members import failed, fates, here, know, telling
from onehop.errors import ArgumentError, ConfigurationError, OnehopError

T = TypeVar("T")

# Words in torch's messages about a connection that was lost or timed out.
_TRANSPORTS = ("gloo", "NCCL", "store")


def place(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """Return (rank, number of processes); raise ConfigurationError if there is no process group."""
    if not dist.is_available() or not dist.is_initialized():
        raise ConfigurationError(
            "onehop.distributed needs a process group: start the program with torchrun and call "
            "torch.distributed.init_process_group('gloo') first."
        )
    return dist.get_rank(group), dist.get_world_size(group)


def together(doing: str, make: Callable[[], T], group: dist.ProcessGroup | None) -> T:
    """Return the result of ``make`` if it succeeds in every process; otherwise every process raises an error.

    A process in which ``make`` failed raises that error; the others raise an ArgumentError that names the
    rank.
    """
    error: Exception | None = None
    result: T | None = None
    try:
        result = make()
    except (OnehopError, OSError) as caught:
        error = caught
    said = gathered(doing, None if error is None else f"{type(error).__name__}: {error}", group)
    if error is not None:
        raise error
    for rank, reason in enumerate(said):
        if reason is not None:
            raise ArgumentError(f"{doing} failed on rank {rank}: {reason}")
    return result  # type: ignore[return-value]


def gathered(doing: str, value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """Gather small values of all processes, by rank; raise CommunicationError if a process is lost."""
    values: list[Any] = [None] * dist.get_world_size(group)
    with telling(doing):
        dist.all_gather_object(values, value, group=group)
    return values


def introduce(doing: str, group: dist.ProcessGroup | None) -> None:
    """Exchange the processes' identities, so that an error can name a lost process."""
    know(gathered(doing, here(), group))


def same(what: str, values: list[Any], advice: str) -> None:
    """Raise an ArgumentError that names the ranks whose value differs from rank 0's, if there are any."""
    others = [rank for rank, value in enumerate(values) if value != values[0]]
    if others:
        raise ArgumentError(f"{what} of ranks {others} is not that of rank 0. {advice}")


def from_first(doing: str, make: Callable[[], Tensor], count: int, group: dist.ProcessGroup | None) -> Tensor:
    """Broadcast a tensor [count] of int32 from rank 0, which makes it, to every process."""
    rank, parts = place(group)
    tensor = together(
        doing, make if rank == 0 else lambda: torch.empty(count, dtype=torch.int32, device="cpu"), group
    )
    if parts > 1:
        with telling(doing):
            dist.broadcast(tensor, group=group, group_src=0)
    return tensor


@contextlib.contextmanager
def naming_lost_ranks(doing: str = "training", group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Context manager that replaces torch's error about a lost process by one that names the process.

    torch's own error, for example in ``DistributedDataParallel``, only says "Connection closed by peer".
    Other errors are not changed. All ranks must enter the block together.

    Args:
        doing: What the block does, for the error message.
        group: The processes; None means all.

    Raises:
        CommunicationError: Another process ended, is stopped or did not answer.
        ConfigurationError: There is no process group.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import naming_lost_ranks
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> ones = torch.ones(2)
        >>> with naming_lost_ranks("adding up"):  # if a process has ended, the error names it
        ...     dist.all_reduce(ones)
        >>> ones  # the sum over one process
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    place(group)
    introduce(doing, group)
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(word in str(error) for word in _TRANSPORTS):
            raise failed(doing, error) from error
        seen = fates()
        if seen.ended or seen.stopped:
            raise failed(doing, error, seen) from error
        raise
