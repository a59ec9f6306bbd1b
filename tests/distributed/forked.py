"""Forks the processes of a distributed test from one that has imported what all of them import.

``python forked.py FOLDER PROCESSES SCRIPT [argument ...]`` runs the script once a rank, each in a process of
its own whose output and errors go to ``FOLDER/RANK.out`` and ``FOLDER/RANK.err``. The last line of this
process has the exit codes, by rank. Importing takes seconds a process, and starts no threads, so that a fork
is as good as a fresh process.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch_geometric.nn  # noqa: F401 - forked processes have it

import onehop.distributed  # noqa: F401


def become(rank: int, folder: Path, script: str, arguments: list[str]) -> int:
    """Runs the script as a rank; returns its exit code."""
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        with (folder / f"{rank}.{name}").open("w") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.environ["RANK"] = str(rank)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ended.code is not None
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    """Forks, and waits for all."""
    folder, processes, script, *arguments = sys.argv[1:]
    children = []
    for rank in range(int(processes)):
        if not (child := os.fork()):
            # Nothing of the parent's ends here, and threads of the script's do not hold its end up.
            os._exit(become(rank, Path(folder), script, arguments))
        children.append(child)
    sys.stdout.write(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))


if __name__ == "__main__":
    main()
