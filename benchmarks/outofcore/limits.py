"""Processes that may take so much memory and no more."""

import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple


class Ran(NamedTuple):
    """What a limited process printed, how it was limited, and the most memory it had, if that is known."""

    printed: str
    limited_by: str
    peak_bytes: int | None


def run(program: list[str], limit: int) -> Ran:
    """Runs a program with so much memory, in a control group where one can be made.

    Elsewhere the program gets ``--limit-data`` with the bytes, for :func:`limit_data`.
    """
    found = _control_group(limit)
    if found is None:
        done = subprocess.run(
            [*program, "--limit-data", str(limit)], stdout=subprocess.PIPE, check=True, text=True
        )
        return Ran(done.stdout, "data segment beside the libraries'; the page cache is not limited", None)
    group, processes = found
    try:
        # A shell that joins the group, and becomes the program.
        joining = ["sh", "-c", f'echo $$ > {processes} && exec "$@"', "sh", *program]
        done = subprocess.run(joining, stdout=subprocess.PIPE, check=False, text=True)
        if done.returncode == -signal.SIGKILL:
            raise SystemExit(
                f"a process was killed that may have {limit / 1e9:.2f} GB: its libraries alone take a "
                "quarter of a gigabyte. Give more --nodes, or a smaller --share."
            )
        done.check_returncode()
        peak = group / "memory.max_usage_in_bytes"
        return Ran(
            done.stdout,
            "control group, libraries and page cache included",
            int(peak.read_text()) if peak.exists() else None,
        )
    finally:
        group.rmdir()


def limit_data(size: int) -> None:
    """Lets this process have so many more bytes of private memory; a map that is only read is not counted."""
    status = Path("/proc/self/status").read_text().splitlines()
    taken = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (taken + size, taken + size))


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
