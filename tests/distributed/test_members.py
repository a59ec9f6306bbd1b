"""Other processes of a host, seen from a job of one real process and others that are made up."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from onehop.distributed import members
from onehop.distributed.members import Fates, Member, fates, here, know


@pytest.fixture
def me(monkeypatch: pytest.MonkeyPatch) -> Member:
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    monkeypatch.setattr(members, "_known", {})
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


def test_a_process_that_runs(other: Other) -> None:
    assert fates() == Fates(running=(other[0],))


def test_a_process_that_is_stopped(other: Other) -> None:
    other[1].send_signal(signal.SIGSTOP)
    os.waitpid(other[1].pid, os.WUNTRACED)
    assert fates() == Fates(stopped=(other[0],))


def test_a_process_that_ended_before_anybody_asked_how(other: Other) -> None:
    other[1].kill()
    os.waitid(os.P_PID, other[1].pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert fates() == Fates(ended=(other[0],))


def test_a_process_that_is_gone(other: Other) -> None:
    other[1].kill()
    other[1].wait()
    assert fates() == Fates(ended=(other[0],))


def test_a_later_process_of_the_same_number_is_another(me: Member) -> None:
    before = dataclasses.replace(me, rank=1, started=me.started - 1)
    know([before])
    assert fates() == Fates(ended=(before,))


def test_a_process_of_another_host_cannot_be_seen(me: Member) -> None:
    far = dataclasses.replace(me, rank=2, space="another boot")
    know([far])
    assert fates() == Fates(elsewhere=(far,))


def test_one_that_cannot_be_seen_does_not_hide_the_next(me: Member) -> None:
    far = dataclasses.replace(me, rank=1, space="another boot")
    gone = dataclasses.replace(me, rank=2, started=me.started - 1)
    know([far, gone])
    assert fates() == Fates(ended=(gone,), elsewhere=(far,))


def test_nobody_waits_once_one_is_lost(me: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members.time, "sleep", lambda _: pytest.fail("it waited for others"))
    running, gone = dataclasses.replace(me, rank=1), dataclasses.replace(me, rank=2, started=-2)
    know([running, gone])
    assert fates() == Fates(ended=(gone,), running=(running,))


def test_nobody_waits_once_one_is_stopped(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members.time, "sleep", lambda _: pytest.fail("it waited for others"))
    stopped, process = other
    know(
        [
            running := dataclasses.replace(
                stopped, rank=2, pid=os.getpid(), started=members._look(os.getpid())[1]
            )
        ]
    )
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    assert fates() == Fates(stopped=(stopped,), running=(running,))


def test_ranks_of_an_earlier_and_larger_job_are_left_out(me: Member) -> None:
    know([dataclasses.replace(me, rank=3, pid=1, started=-2)])
    assert fates() == Fates()
