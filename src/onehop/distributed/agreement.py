"""Collective error handling: an error in one process is raised in all, with the reason."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed.failures import failed
from onehop.distributed.members import here, know
from onehop.errors import ArgumentError, ConfigurationError, OnehopError

T = TypeVar("T")


def place(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """(rank, number of processes).

    Raises:
        ConfigurationError: torch.distributed has not been initialised.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise ConfigurationError(
            "onehop.distributed needs a process group: start the program with torchrun and call "
            "torch.distributed.init_process_group('gloo') first."
        )
    return dist.get_rank(group), dist.get_world_size(group)


def together(doing: str, make: Callable[[], T], group: dist.ProcessGroup | None) -> T:
    """Returns the result of ``make`` if it succeeds in every process.

    Raises:
        ArgumentError: It failed in another process; if it failed here, its own error is raised.
    """
    error: Exception | None = None
    made: T | None = None
    try:
        made = make()
    except (OnehopError, OSError) as caught:
        error = caught
    said = gathered(doing, None if error is None else f"{type(error).__name__}: {error}", group)
    if error is not None:
        raise error
    for rank, reason in enumerate(said):
        if reason is not None:
            raise ArgumentError(f"{doing} failed on rank {rank}: {reason}")
    return made  # type: ignore[return-value]


def gathered(doing: str, value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """The small values of all processes, by rank.

    Raises:
        CommunicationError: Another process ended or did not answer.
    """
    values: list[Any] = [None] * dist.get_world_size(group)
    try:
        dist.all_gather_object(values, value, group=group)
    except RuntimeError as error:
        raise failed(doing, error) from error
    return values


def introduce(doing: str, group: dist.ProcessGroup | None) -> None:
    """Exchanges the processes' identities, so that an error can name a lost one.

    Raises:
        CommunicationError: Another process ended or did not answer.
    """
    know(gathered(doing, here(), group))


def same(what: str, values: list[Any], advice: str) -> None:
    """Raises unless all processes have the same value.

    Raises:
        ArgumentError: The values differ; names the ranks that differ from rank 0.
    """
    others = [rank for rank, value in enumerate(values) if value != values[0]]
    if others:
        raise ArgumentError(f"{what} of ranks {others} is not that of rank 0. {advice}")


def from_first(doing: str, make: Callable[[], Tensor], count: int, group: dist.ProcessGroup | None) -> Tensor:
    """Broadcasts [count], int32, made on rank 0, to every process."""
    rank, parts = place(group)
    made = together(
        doing, make if rank == 0 else lambda: torch.empty(count, dtype=torch.int32, device="cpu"), group
    )
    if parts > 1:
        try:
            dist.broadcast(made, group=group, group_src=0)
        except RuntimeError as error:
            raise failed(doing, error) from error
    return made
