"""Other processes of a host, seen from a job of one real process and others that are made up."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from onehop.distributed import members
from onehop.distributed.members import Fates, Member, fates, here, know


@pytest.fixture
def me(monkeypatch: pytest.MonkeyPatch) -> Member:
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    monkeypatch.setattr(members, "_members", {})
    monkeypatch.setattr(members, "_ENDING_S", 0.1)
    found = here()
    if not found.space:
        pytest.skip("this system has no /proc to look at processes")
    know([found])
    return found


@pytest.fixture
def other(me: Member) -> Iterator[tuple[Member, subprocess.Popen[bytes]]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = members._look(process.pid)[1]
        member = dataclasses.replace(me, rank=1, pid=process.pid, started=started)
        know([member])
        yield member, process
        process.kill()


Other = tuple[Member, subprocess.Popen[bytes]]


def stopped(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def a_zombie(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def gone(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("change", "fate"),
    [(lambda process: None, "running"), (stopped, "stopped"), (a_zombie, "ended"), (gone, "ended")],
    ids=["running", "stopped", "a zombie", "gone"],
)
def test_a_process_of_this_host(change: Callable[..., None], fate: str, other: Other) -> None:
    change(other[1])
    assert fates() == Fates(**{fate: (other[0],)})


# What others have in place of this process's rank, start and namespace, and the fates of those that are seen.
MADE_UP = {
    "a later process of the same number": [("ended", {"rank": 1, "started": -2})],
    "one of another host": [("elsewhere", {"rank": 2, "space": "another boot"})],
    "one that cannot be seen, and one that ended": [
        ("elsewhere", {"rank": 1, "space": "another boot"}),
        ("ended", {"rank": 2, "started": -2}),
    ],
    "a rank of an earlier and larger job": [(None, {"rank": 3, "pid": 1, "started": -2})],
}


@pytest.mark.parametrize("name", MADE_UP)
def test_processes_that_are_others(name: str, me: Member) -> None:
    made = [(fate, dataclasses.replace(me, **changes)) for fate, changes in MADE_UP[name]]
    know([member for _, member in made])
    assert fates() == Fates(**{fate: (member,) for fate, member in made if fate})


def test_nobody_waits_once_one_is_lost(me: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members.time, "sleep", lambda _: pytest.fail("it waited for others"))
    running, gone = dataclasses.replace(me, rank=1), dataclasses.replace(me, rank=2, started=-2)
    know([running, gone])
    assert fates() == Fates(ended=(gone,), running=(running,))


def test_nobody_waits_once_one_is_stopped(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members.time, "sleep", lambda _: pytest.fail("it waited for others"))
    member, process = other
    this = members._look(os.getpid())[1]
    running = dataclasses.replace(member, rank=2, pid=os.getpid(), started=this)
    know([running])
    stopped(process)
    assert fates() == Fates(stopped=(member,), running=(running,))
