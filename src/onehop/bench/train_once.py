"""One training run in a process of its own, so that its peak memory is its own.

``python -m onehop.bench.train_once``, started by :mod:`onehop.bench.runs`, reads a JSON object from standard
input and writes one JSON object a line to standard output: ``loaded``, then an ``epoch`` each, then ``done``.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import onehop
from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.tasks import load_task
from onehop.bench.training import start


def main() -> None:
    """Runs what standard input asks for: task, model, patched, hidden, epochs, threads, seed."""
    order = json.load(sys.stdin)
    torch.set_num_threads(order["threads"])
    task = load_task(Path(order["task"]))
    if order["patched"]:
        onehop.patch()
    training = start(order["model"], task, order["hidden"], seed=order["seed"])
    _tell(event="loaded", resident_bytes=resident_bytes())
    for number in range(order["epochs"]):
        begin = time.perf_counter()
        loss = training.epoch()
        _tell(event="epoch", number=number, seconds=time.perf_counter() - begin, loss=loss)
    peak = peak_bytes()
    _tell(event="done", peak_bytes=peak, test_accuracy=training.test_accuracy())


def _tell(**content: Any) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
