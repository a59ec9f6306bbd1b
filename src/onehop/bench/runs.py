"""Training runs, each in a separate process, so that its peak memory can be measured.

The process is ``python -m onehop.bench.runs``. It reads a JSON object from standard input, and writes one
JSON object per line to standard output: first ``loaded``, then one ``epoch`` per epoch, then ``done``.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from onehop.bench.cases import Workload
from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.tasks import LearningTask, load_task, save_task
from onehop.bench.timing import Times
from onehop.bench.training import start
from onehop.bench.variants import BY_NAME
from onehop.errors import OnehopError


@dataclass(frozen=True)
class Order:
    """The task of one run.

    Attributes:
        task: File that :func:`onehop.bench.tasks.save_task` wrote.
        model: A key of :data:`onehop.bench.recipes.RECIPES`.
        way: How it is trained, the name of a variant of :mod:`onehop.bench.variants`.
        hidden: Width between the layers.
        epochs: Number of epochs.
        threads: torch's number of threads.
        seed: Seed of the initial parameters.
    """

    task: str
    model: str
    way: str
    hidden: int
    epochs: int
    threads: int = field(default_factory=torch.get_num_threads)
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """The measurements of one run.

    Attributes:
        seconds: Seconds of every epoch; the first epoch includes work that is done once per graph.
        losses: Loss of every epoch, before its optimiser step.
        loaded_bytes: Resident memory before the first epoch.
        peak_bytes: Maximum resident memory, including training.
        test_accuracy: Share of the test nodes that are classified correctly, 0 to 1.
    """

    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    loaded_bytes: int
    peak_bytes: int
    test_accuracy: float

    @property
    def epoch_s(self) -> float:
        """The median epoch time, without the first epoch if there are more."""
        return Times(self.seconds[1:] or self.seconds).median_s

    def to_dict(self) -> dict[str, Any]:
        """Return the run, ready for JSON."""
        return {"epoch_s": self.epoch_s, "first_epoch_s": self.seconds[0], **asdict(self)}


@contextmanager
def saved(task: LearningTask) -> Iterator[str]:
    """Context manager that writes a task to a temporary file for :class:`Order` and yields the file."""
    with tempfile.TemporaryDirectory(prefix="onehop-") as folder:
        path = Path(folder) / "task.npz"
        save_task(task, path)
        yield str(path)


def run(order: Order, on_epoch: Callable[[], None]) -> Run:
    """Train in a new process; ``on_epoch`` is called after every epoch.

    Raises:
        OnehopError: The process failed; the message ends with the last line that the process wrote.
    """
    command = [sys.executable, "-m", "onehop.bench.runs"]
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryFile("w+") as complaints:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True
        ) as process:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("Popen gave no pipes.")
            process.stdin.write(json.dumps(asdict(order)))
            process.stdin.close()
            for line in process.stdout:
                events.append(json.loads(line))
                if events[-1]["event"] == "epoch":
                    on_epoch()
        if process.returncode != 0:
            complaints.seek(0)
            last = (complaints.read().strip().splitlines() or ["without a word"])[-1]
            how = f"code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
            raise OnehopError(
                f"Training {order.model} ({order.way}) on {Path(order.task).stem} ended with {how}: {last}"
            )
    epochs = [event for event in events if event["event"] == "epoch"]
    done = events[-1]
    return Run(
        seconds=tuple(event["seconds"] for event in epochs),
        losses=tuple(event["loss"] for event in epochs),
        loaded_bytes=events[0]["resident_bytes"],
        peak_bytes=done["peak_bytes"],
        test_accuracy=done["test_accuracy"],
    )


def main() -> None:
    """Run the :class:`Order` on standard input."""
    order = Order(**json.load(sys.stdin))
    torch.set_num_threads(order.threads)
    task = load_task(Path(order.task))
    variant = BY_NAME[order.way]
    edges = variant.edges(Workload(task.name, task.edge_index, task.x.size(0)))
    with variant.context():
        training = start(order.model, task, order.hidden, seed=order.seed, edges=edges)
        variant.prepare(training.model)
        _tell(event="loaded", resident_bytes=resident_bytes())
        for number in range(order.epochs):
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
