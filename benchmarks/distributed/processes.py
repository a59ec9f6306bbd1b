"""Processes of this machine that run one script, as torchrun would start them, with one thread each."""

import json
import os
import socket
import subprocess
import sys


def launch(script: str, processes: int, *arguments: str) -> list[dict]:
    """Starts the processes, and gathers the JSON in the last line of what each says.

    Args:
        script: Its path.
        processes: How many.
        arguments: Of the script.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(processes),
        "OMP_NUM_THREADS": "1",
        "ONEHOP_TUNED": "0",
    }
    started = [
        subprocess.Popen(
            [sys.executable, script, *arguments],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"a process of {processes} failed; see above")
    return [json.loads(text.splitlines()[-1]) for text in said]
