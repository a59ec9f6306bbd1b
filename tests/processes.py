"""Python processes that begin with torch and PyG imported, which takes a process five seconds otherwise.

They are forked from a program that has imported both, ``forking.py``. For programs that look neither at
imports nor at memory; those start as users start them.
"""

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch


def run_python(
    arguments: Sequence[str | Path],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 1800,
) -> "subprocess.CompletedProcess[str]":
    """Runs ``python`` with a script, a module or a program, and arguments; None is what this process has."""
    return run_together(arguments, [dict(os.environ if env is None else env)], cwd, timeout)[0]


def run_together(
    arguments: Sequence[str | Path],
    environments: Sequence[Mapping[str, str]],
    cwd: Path | None = None,
    timeout: float = 1800,
) -> "list[subprocess.CompletedProcess[str]]":
    """Runs ``python`` with these arguments in as many processes as there are environments, at a time."""
    command = [str(each) for each in arguments]
    # A recording of what programs execute begins where a process does.
    recorded = any("COVERAGE_PROCESS_START" in environment for environment in environments)
    start = started if recorded else Forked
    until = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(Path(os.devnull).open())
        processes, streams = [], []
        for environment in environments:
            both = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
            processes.append(start(command, cwd, environment, nothing, *both))
            stack.callback(processes[-1].kill)
            streams.append(both)
        try:
            codes = [process.wait(max(until - time.monotonic(), 0)) for process in processes]
        except subprocess.TimeoutExpired as late:
            late.output, late.stderr = ("\n".join(map(text, each)) for each in zip(*streams, strict=True))
            raise
        return [
            subprocess.CompletedProcess(command, code, *map(text, both))
            for code, both in zip(codes, streams, strict=True)
        ]


def run_anew(*arguments: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Runs ``python`` with these arguments in a process that imports everything itself."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **options)


def started(
    command: Sequence[str],
    cwd: Path | None,
    environment: Mapping[str, str],
    stdin: IO[Any],
    stdout: IO[Any],
    stderr: IO[Any],
) -> "subprocess.Popen[bytes]":
    """Starts a process that imports everything itself."""
    return subprocess.Popen(
        [sys.executable, *command], cwd=cwd, env=environment, stdin=stdin, stdout=stdout, stderr=stderr
    )


class Forked:
    """A process that is forked; with what is used of ``subprocess.Popen``.

    ``whole`` lets Python end it, and not ``forking.py``: for programs whose very end is looked at. ``passed``
    are further files that it gets, by number, under the same numbers.

    Attributes:
        pid: Its number.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path | None,
        environment: Mapping[str, str],
        stdin: IO[Any],
        stdout: IO[Any],
        stderr: IO[Any],
        whole: bool = False,
        passed: Sequence[int] = (),
    ) -> None:
        self.args = command
        self.returncode: int | None = None
        request = {
            "command": command,
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(environment),
            "path": sys.path,
            "whole": whole,
            "passed": passed,
        }
        answers, given = os.pipe()
        streams = [each.fileno() for each in (stdin, stdout, stderr)]
        # Read when triton is imported.
        interprets = "TRITON_INTERPRET" in environment
        socket.send_fds(forking(interprets)[1], [json.dumps(request).encode()], [*streams, given, *passed])
        os.close(given)
        self._answers = os.fdopen(answers)
        self.pid = int(self._answers.readline())

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; returns its exit code, or minus the signal that killed it."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
        return self.returncode

    def kill(self) -> None:
        """Kills it, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()


class Piped(Forked):
    """The same with pipes, in the place of ``subprocess.Popen`` in code that a test calls.

    Attributes:
        stdin: Its standard input.
        stdout: Its standard output.
    """

    def __init__(self, command: Sequence[str], stdin: int, stdout: int, stderr: IO[Any], text: bool) -> None:
        assert (command[0], stdin, stdout, text) == (sys.executable, subprocess.PIPE, subprocess.PIPE, True)
        (inner_in, outer_in), (outer_out, inner_out) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(outer_in, "w"), os.fdopen(outer_out)
        with os.fdopen(inner_in) as given, os.fdopen(inner_out, "w") as told:
            super().__init__(command[1:], None, os.environ, given, told, stderr)

    def __enter__(self) -> "Piped":
        return self

    def __exit__(self, *error: object) -> None:
        self.stdin.close()
        self.stdout.close()
        self.wait()


@functools.cache
def forking(interprets: bool) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """The process that forks, and the socket for requests; it ends when this process has.

    interprets: Whether triton interprets its kernels there.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("forking.py"), str(theirs.fileno())],
            env=environment | ({"TRITON_INTERPRET": "1"} if interprets else {}),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    return process, ours


def text(stream: IO[str]) -> str:
    """Return all that a file has."""
    stream.seek(0)
    return stream.read()


def forked(run: Callable[[], object]) -> int:
    """Runs a function in a forked process, and returns its number."""
    child = os.fork()
    if child == 0:
        try:
            # The threads of torch's loops did not come along.
            torch.set_num_threads(1)
            run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    """Waits for a forked process; returns 0, 1 after an exception, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Stop(Exception):
    """What a test raises where power might fail."""
