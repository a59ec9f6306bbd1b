"""Worker processes that answer requests with a model, like the workers of a service.

Each worker is spawned, because a forked child has none of torch's threads, and imports everything itself. It
answers one request at a time under ``torch.inference_mode()``, as a service would: torch then records no
gradients, and tensors have no version counters. A request is a graph and its features. Its tensors are
created when it is answered, just as a service creates tensors from the data that it receives.
"""

import multiprocessing
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop.bench.arrivals import Answer, answer_next
from onehop.bench.recipes import served
from onehop.errors import OnehopError

# Maximum number of different requests that are drawn for a case. Later requests repeat the graphs, in new
# tensors.
_MOST_DRAWN = 1000
_DRAWN_BYTES = 64 << 20
# Number of answers that are compared before anything is timed.
_COMPARED = 5
# Answers at the beginning of a turn that are not counted: their maximum number, and their maximum time.
_MOST_WARM = 50
_WARM_S = 0.1
# Minimum number of requests that an always-busy worker answers.
_LEAST_BUSY = 3
# A sleep may end late by up to this time; the rest of a wait is spent in a busy loop.
_LATE_S = 2e-4


@dataclass(frozen=True)
class Case:
    """A model that is served, and the size of its requests.

    Attributes:
        model: A key of :data:`onehop.bench.recipes.SERVED`.
        nodes: Number of nodes of each request's graph.
        edges: Number of edges of each request's graph.
        width: Number of feature columns, and of columns between the layers.
        seed: Seed of the parameters and the requests.
    """

    model: str
    nodes: int
    edges: int
    width: int
    seed: int


class Servers:
    """The worker processes, as a context manager that ends them.

    Args:
        processes: Number of processes.
        threads: torch's number of threads in each process.
    """

    def __init__(self, processes: int, threads: int) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._next = spawning.Value("q", 0)
        self._workers = []
        # Ctrl-C reaches all processes; workers, which inherit this, leave it to this one to end them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(processes):
                here, there = spawning.Pipe()
                worker = spawning.Process(target=_work, args=(there, self._next, threads), daemon=True)
                worker.start()
                there.close()
                self._workers.append((worker, here))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        for worker, pipe in self._workers:
            pipe.close()
            worker.terminate()
            worker.join()

    def prepare(self, case: Case) -> float:
        """Create the model and its requests; return the largest difference of the patched answers.

        The difference is relative to the largest entry of PyG's answer.
        """
        differences: list[float] = self._ask("prepare", case)
        return max(differences)

    def busy(self, patched: bool, seconds: float) -> tuple[float, list[tuple[int, float]]]:
        """Make all workers answer requests for some seconds; return when they began, and each worker's work.

        A worker's work is the number of its answers, and the time of its last answer.
        """
        begin_s = self._begin(patched)
        return begin_s, self._ask("busy", begin_s, begin_s + seconds)

    def serve(self, patched: bool, arrivals: Sequence[float]) -> tuple[list[float], list[Answer]]:
        """Make the workers answer requests as they arrive.

        Returns:
            The arrival time of each request, and the answers of all workers.
        """
        begin_s = self._begin(patched)
        arrived = [begin_s + each for each in arrivals]
        self._next.value = 0
        return arrived, [answer for answers in self._ask("serve", arrived) for answer in answers]

    def _begin(self, patched: bool) -> float:
        """Make all workers leave or enter the patch, and answer until warm; return the time after that."""
        self._ask("enter", patched)
        return time.perf_counter()

    def _ask(self, name: str, *arguments: Any) -> list[Any]:
        """Call a method in all workers at the same time; return their results.

        Raises:
            OnehopError: A worker raised it, or a worker has ended.
        """
        try:
            for _, pipe in self._workers:
                pipe.send((name, arguments))
            results = [pipe.recv() for _, pipe in self._workers]
        except (EOFError, OSError) as error:
            raise OnehopError("A worker process ended; what it wrote above says why.") from error
        for result in results:
            if isinstance(result, OnehopError):
                raise result
        return results


class _Server:
    """The model and requests of a worker."""

    def __init__(self, next_number: Any) -> None:
        self._next = next_number

    def prepare(self, case: Case) -> float:
        torch.manual_seed(case.seed)
        self._model = served(case.model, case.width).eval()
        self._requests = _drawn(case)
        onehop.unpatch()
        expected = [self._answer(number) for number in range(_COMPARED)]
        with onehop.patch():
            answers = [self._answer(number) for number in range(_COMPARED)]
        return max(map(_difference, answers, expected))

    def enter(self, patched: bool) -> None:
        (onehop.patch if patched else onehop.unpatch)()
        until = time.perf_counter() + _WARM_S
        for number in range(_MOST_WARM):
            self._answer(number)
            if time.perf_counter() > until:
                break

    def busy(self, begin_s: float, end_s: float) -> tuple[int, float]:
        _wait_until(begin_s)
        count, now = 0, begin_s
        while now < end_s or count < _LEAST_BUSY:
            self._answer(count)
            count, now = count + 1, time.perf_counter()
        return count, now

    def serve(self, arrivals: Sequence[float]) -> list[Answer]:
        answers = []
        while (number := self._take()) < len(arrivals):
            answers.append(answer_next(number, arrivals, self._answer, time.perf_counter, _wait_until))
        return answers

    def _take(self) -> int:
        """Return the number of the next request, which no other worker gets."""
        with self._next.get_lock():
            number: int = self._next.value
            self._next.value += 1
        return number

    @torch.inference_mode()
    def _answer(self, number: int) -> Tensor:
        x, edge_index = self._requests[number % len(self._requests)]
        answer: Tensor = self._model(x.clone(), edge_index.clone())
        return answer


def _work(orders: Connection, next_number: Any, threads: int) -> None:
    """Run the commands of the parent process until it closes the pipe."""
    torch.set_num_threads(threads)
    server = _Server(next_number)
    while True:
        try:
            name, arguments = orders.recv()
        except EOFError:
            return
        try:
            result = getattr(server, name)(*arguments)
        except OnehopError as error:
            result = error
        orders.send(result)


def _drawn(case: Case) -> list[tuple[Tensor, Tensor]]:
    """Return features and edges of the requests, the same in every process."""
    generator = torch.Generator().manual_seed(case.seed)
    bytes_each = 4 * case.nodes * case.width + 16 * case.edges
    return [
        (
            torch.randn(case.nodes, case.width, generator=generator, device="cpu"),
            torch.randint(case.nodes, (2, case.edges), generator=generator, device="cpu"),
        )
        for _ in range(max(min(_MOST_DRAWN, _DRAWN_BYTES // bytes_each), _COMPARED))
    ]


def _difference(answer: Tensor, expected: Tensor) -> float:
    return float((answer - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


def _wait_until(then_s: float) -> None:
    while (left := then_s - time.perf_counter()) > 0:
        if left > _LATE_S:
            time.sleep(left - _LATE_S)
