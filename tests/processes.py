"""Python processes that begin with torch and PyG imported, which takes a process five seconds otherwise.

They are forked from a process that has imported both. For programs that look neither at imports nor at memory
and are sent no signals; those start as users start them.
"""

import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

import torch

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch_geometric.nn", "onehop.distributed"])


def run_python(
    arguments: Sequence[str | Path],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 1800,
) -> "subprocess.CompletedProcess[str]":
    """Runs ``python`` with a script or ``-m`` and a module, and arguments; None is what this process has."""
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
    if any("COVERAGE_PROCESS_START" in environment for environment in environments):
        return _started(command, environments, cwd, timeout)
    with tempfile.TemporaryDirectory() as folder:
        here, ranks = Path(folder), range(len(environments))
        streams = [(here / f"{rank}.out", here / f"{rank}.err") for rank in ranks]
        given = [
            (command, str(cwd or Path.cwd()), dict(environments[rank]), *streams[rank]) for rank in ranks
        ]
        processes = [_CONTEXT.Process(target=_become, args=each) for each in given]
        until = time.monotonic() + timeout
        try:
            for process in processes:
                process.start()
            for process in processes:
                process.join(max(until - time.monotonic(), 0))
            late = any(process.is_alive() for process in processes)
        finally:
            for process in processes:
                process.kill()
                process.join()
        said = [(out.read_text(), err.read_text()) for out, err in streams]
    if late:
        raise subprocess.TimeoutExpired(command, timeout, *map("\n".join, zip(*said, strict=True)))
    codes = [int(process.exitcode) for process in processes]
    return [
        subprocess.CompletedProcess(command, code, *texts) for code, texts in zip(codes, said, strict=True)
    ]


def _started(
    command: list[str], environments: Sequence[Mapping[str, str]], cwd: Path | None, timeout: float
) -> "list[subprocess.CompletedProcess[str]]":
    """The same by processes that import everything themselves."""
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]
    try:
        said = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        subprocess.CompletedProcess(command, process.returncode, *texts)
        for process, texts in zip(processes, said, strict=True)
    ]


def _become(command: list[str], cwd: str, environment: dict[str, str], out: Path, err: Path) -> None:
    """Does what ``python`` does with a script, or ``-m`` and a module."""
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        with path.open("w") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    # Was read when torch was imported.
    if threads := environment.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    first, *rest = command
    here = cwd if first == "-m" else str(Path(first).parent)
    sys.path[:0] = [here, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(first, run_name="__main__")
