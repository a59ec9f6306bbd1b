"""The processes of a job and their states, and errors that name a lost process."""

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from onehop.errors import CommunicationError

# A process whose connections are closed may take this many seconds to exit.
_ENDING_S = 2.0
_LOOK_EVERY_S = 0.02
_PROCESSES = Path("/proc")
_BOOT = _PROCESSES / "sys/kernel/random/boot_id"
_SPACE = _PROCESSES / "self/ns/pid"


@dataclass(frozen=True, slots=True)
class Member:
    """One process: its rank in the default group, its host, and its process ID there.

    ``space`` identifies the PID namespace, and is empty if the system has no /proc. ``started`` is the
    process's start time in the system's ticks, which distinguishes it from a later process with the same ID.
    """

    rank: int
    host: str
    space: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


@dataclass(frozen=True, slots=True)
class Fates:
    """The other processes, grouped by their observable state.

    Stopped processes are held by a signal or a debugger. Processes elsewhere cannot be observed from here.
    """

    ended: tuple[Member, ...] = ()
    stopped: tuple[Member, ...] = ()
    running: tuple[Member, ...] = ()
    elsewhere: tuple[Member, ...] = ()


_members: dict[int, Member] = {}


def here() -> Member:
    """Return this process."""
    pid, space, started = os.getpid(), "", 0
    if _BOOT.exists() and _SPACE.is_symlink():
        space = f"{_BOOT.read_text().strip()} {_SPACE.readlink()}"
        started = _look(pid)[1]
    return Member(dist.get_rank(), socket.gethostname(), space, pid, started)


def know(members: list[Member]) -> None:
    """Remember the processes that this process works with."""
    _members.update({member.rank: member for member in members})


def fates() -> Fates:
    """Check the other processes; wait up to two seconds for one to be lost."""
    deadline = time.monotonic() + _ENDING_S
    while True:
        outcome = _fates()
        if outcome.ended or outcome.stopped or not outcome.running or time.monotonic() > deadline:
            return outcome
        time.sleep(_LOOK_EVERY_S)


def _fates() -> Fates:
    me = _members.get(dist.get_rank())
    sorted_by: dict[str, list[Member]] = {"ended": [], "stopped": [], "running": [], "elsewhere": []}
    for member in _members.values():
        # An earlier job of this process may have had more processes.
        if me is None or member == me or member.rank >= dist.get_world_size():
            continue
        if not me.space or member.space != me.space:
            sorted_by["elsewhere"].append(member)
            continue
        state, started = _look(member.pid)
        if started != member.started or state in "ZX":
            sorted_by["ended"].append(member)
        else:
            sorted_by["stopped" if state in "Tt" else "running"].append(member)
    return Fates(**{name: tuple(members) for name, members in sorted_by.items()})


def _look(pid: int) -> tuple[str, int]:
    """Return the state of a process, one letter, and its start time; ("X", -1) if it does not exist.

    See proc(5), /proc/pid/stat: the name, in brackets, may contain any characters; the result is fields 3 and
    22.
    """
    try:
        fields = (_PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "X", -1
    return fields[0], int(fields[19])


def failed(doing: str, error: RuntimeError, seen: Fates | None = None) -> CommunicationError:
    """Return an error made from torch's error and the observable state of the other processes.

    ``doing`` says what this process was doing. ``seen`` is the state of the other processes; None means that
    it is checked now.
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


@contextlib.contextmanager
def telling(doing: str) -> Iterator[None]:
    """Replace torch's error inside the block by the error of :func:`failed`."""
    try:
        yield
    except RuntimeError as error:
        raise failed(doing, error) from error


def _listed(members: Iterable[Member]) -> str:
    return ", ".join(str(member) for member in members)
