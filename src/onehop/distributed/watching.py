"""Errors of torch's own collectives, as in DistributedDataParallel, with the name of the lost rank."""

import contextlib
from collections.abc import Iterator

import torch.distributed as dist

from onehop.distributed.agreement import introduce, place
from onehop.distributed.failures import failed
from onehop.distributed.members import fates

# In torch's messages of a lost connection, or of one on which nothing came in time.
_TRANSPORTS = ("gloo", "NCCL", "store")


@contextlib.contextmanager
def naming_lost_ranks(doing: str = "training", group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Turns torch's error of a lost process, inside the block, into one that names the process.

    ``DistributedDataParallel`` says "Connection closed by peer". Other errors leave the block as they are.
    All ranks enter it together.

    Args:
        doing: What the block does, for the message.
        group: The processes; None means all.

    Raises:
        CommunicationError: Another process ended, is stopped or did not answer.
        ConfigurationError: There is no process group.
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
