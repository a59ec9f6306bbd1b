"""Processes that may take so much memory and no more."""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import harness
from benchmarks.harness import Option, Options, Row
from onehop.bench.memory import status_bytes


class Ran(NamedTuple):
    """What a limited process returned, how it was limited, and the most memory it had, if that is known."""

    result: Row
    limited_by: str
    peak_bytes: int | None


def run(function: Callable[[Row], Row], order: Row, limit: int) -> Ran:
    """Calls a function in a process with so much memory, in a control group where one can be made.

    Elsewhere its ``order`` has the bytes as "limit_data", for :func:`limit_data`.
    """
    found = _control_group(limit)
    called = partial(subprocess.run, stdout=subprocess.PIPE, text=True, env=harness.environment())
    if found is None:
        done = called(harness.program_of(function, {**order, "limit_data": limit}), check=True)
        how = "data segment beside the libraries'; the page cache is not limited"
        return Ran(harness.result_of(done.stdout), how, None)
    group, processes = found
    try:
        # A shell that joins the group, and becomes the program.
        joining = ["sh", "-c", f'echo $$ > {processes} && exec "$@"', "sh"]
        done = called([*joining, *harness.program_of(function, {**order, "limit_data": 0})], check=False)
        if done.returncode == -signal.SIGKILL:
            raise SystemExit(
                f"a process was killed that may have {limit / 1e9:.2f} GB: its libraries alone take a "
                "quarter of a gigabyte. Give more --nodes, or a smaller --share."
            )
        done.check_returncode()
        peak = group / "memory.max_usage_in_bytes"
        peak_bytes = int(peak.read_text()) if peak.exists() else None
        return Ran(
            harness.result_of(done.stdout), "control group, libraries and page cache included", peak_bytes
        )
    finally:
        group.rmdir()


def limit_data(size: int) -> None:
    """Lets this process have so many more bytes of private memory; 0 for any number.

    A map that is only read is not counted.
    """
    if not size:
        return
    most = status_bytes("VmData") + size
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _control_group(limit: int) -> tuple[Path, Path] | None:
    """A new control group with that much memory, and its file of processes; None where none can be made."""
    for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"onehop-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
        except OSError:
            shutil.rmtree(group, ignore_errors=True)
            continue
        return group, group / "cgroup.procs"
    return None


def counted() -> Row:
    """Bytes that this process has had read from and written to disks."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {key: int(counts[key]) for key in ("read_bytes", "write_bytes")}


def folder_of(options: Options) -> Path:
    """The folder to measure in.

    Raises:
        SystemExit: There is none.
    """
    if options.folder is None:
        raise SystemExit("--folder is needed: a place with room on the disk to be measured")
    folder: Path = options.folder
    return folder


FOLDER = Option(None, "a place with room on the disk to be measured", kind=Path)
