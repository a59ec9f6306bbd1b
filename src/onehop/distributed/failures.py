"""Errors of a lost process: they name it and give advice."""

from collections.abc import Iterable

import torch.distributed as dist

from onehop.distributed.members import Fates, Member, fates
from onehop.errors import CommunicationError


def failed(doing: str, error: RuntimeError, seen: Fates | None = None) -> CommunicationError:
    """An error made of torch's error and the observable state of the other processes.

    Args:
        doing: What this process was doing.
        error: Torch's.
        seen: The other processes; None: they are looked at now.
    """
    seen = fates() if seen is None else seen
    lost = [f"{member} ended" for member in seen.ended]
    lost += [f"{member} is stopped" for member in seen.stopped]
    advice = "Look for the first error among the other ranks"
    if seen.stopped:
        advice = "Find out what stopped a process (SIGSTOP, a debugger)"
    elif seen.ended:
        advice = "Look for the first error in the output of the ranks that ended"
    if lost:
        what = ", ".join(lost)
    else:
        what = "another process ended or did not answer within the timeout of init_process_group"
        if seen.running:
            what += f"; {_listed(seen.running)} still runs, and may be at another place of the program"
        if seen.elsewhere:
            what += f"; {_listed(seen.elsewhere)} cannot be seen from here"
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return CommunicationError(
        f"rank {dist.get_rank()}, {doing}: {what}. {advice}; this job cannot continue, so start it again "
        f"from its last checkpoint. (torch: {reason[0]})"
    )


def _listed(members: Iterable[Member]) -> str:
    return ", ".join(str(member) for member in members)
