"""Programs in a process of their own, which may crash or hang without taking the others along."""

import os
import pickle
import select
import signal
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.differential.compare import Difference
from tests.differential.kinds import MODELS, AnyProgram, Kind
from tests.differential.layers import KINDS

SECONDS = 120.0
"""After so many a program counts as hung. One takes a fraction of a second."""


def warm_up() -> None:
    """Imports and renders what every process would have to for itself otherwise."""
    for kind in KINDS.values():
        kind.make(3, 3)
    x = torch.ones(2)
    torch.func.jacrev(torch.sin)(x)
    torch.func.jvp(torch.sin, (x,), (x,))


def verdicts(programs: list[AnyProgram], kind: Kind = MODELS) -> list[Difference | None]:
    """How each program differs, for a process that was started for this alone."""
    torch.set_num_threads(1)
    warm_up()
    return [verdict for _, verdict in judged(programs, lambda each: each, kind)]


def isolated(program: AnyProgram, kind: Kind = MODELS) -> Difference | None:
    """How a program differs, found in a process of its own; its death is a difference too."""
    return next(each for _, each in judged([program], lambda each: each, kind))


def judged(
    items: list[Any], program_of: Callable[[Any], AnyProgram], kind: Kind = MODELS
) -> Iterator[tuple[Any, Difference | None]]:
    """Each item with how its program differs, from as few processes as do not die."""
    done = 0
    while done < len(items):
        for verdict in _from_child(items[done:], program_of, kind):
            yield items[done], verdict
            done += 1


def _from_child(
    items: list[Any], program_of: Callable[[Any], AnyProgram], kind: Kind
) -> Iterator[Difference | None]:
    """Verdicts from one process, up to and with the item that it dies of."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _work(items, program_of, kind, reading, writing)
    os.close(writing)
    read, reaped = 0, False
    try:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while read < len(items):
                if not select.select([pipe], [], [], SECONDS)[0]:
                    yield _ending(program_of(items[read]), f"hung: for {SECONDS:.0f} seconds")
                    return
                size = pipe.read(8)
                if not size:
                    reaped = True
                    yield _judged_dead(program_of(items[read]), kind, _death(child))
                    return
                yield pickle.loads(_exactly(pipe, int.from_bytes(size, "little")))
                read += 1
    finally:
        if not reaped:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _work(
    items: list[Any], program_of: Callable[[Any], AnyProgram], kind: Kind, reading: int, writing: int
) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.close(reading)
        _hush()
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            for item in items:
                verdict = pickle.dumps(_verdict(program_of(item), kind))
                pipe.write(len(verdict).to_bytes(8, "little") + verdict)
        code = 0
    finally:
        os._exit(code)


def _verdict(program: AnyProgram, kind: Kind) -> Difference | None:
    try:
        return kind.difference(program)
    except Exception as error:  # a fault of the tests, told like a difference so that the run goes on
        return _ending(program, f"the tests failed: {type(error).__name__}: {error}")


def _ending(program: AnyProgram, what: str) -> Difference:
    return Difference(len(program.steps), "the whole program", (what,))


def _exactly(pipe: Any, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = pipe.read(size - len(parts))
        if not part:
            raise EOFError("The process died while it told its verdict.")
        parts += part
    return parts


def _judged_dead(program: AnyProgram, kind: Kind, death: str) -> Difference | None:
    """What the death of a process says: nothing, if the program kills it without the patch, too."""
    child = os.fork()
    if child == 0:
        try:
            _hush()
            kind.alone(program)
        finally:
            os._exit(0)
    if os.waitpid(child, 0)[1]:
        return None
    return _ending(program, f"died: {death}")


def _hush() -> None:
    """Sends to nowhere what torch and the C library say when a process dies."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)


def _death(child: int) -> str:
    """How a process ended whose end of the pipe is closed."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit status {code}"
