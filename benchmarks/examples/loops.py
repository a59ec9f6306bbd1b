"""The loops over epochs of a script that runs unmodified: counted, timed and ended from outside.

A script is executed as it is written, with one name more in its globals: ``range``. Where a loop over epochs
takes its numbers, that name hands out as many epochs as the process on the other side of a channel allows,
and tells it how long they took; everywhere else it is Python's own.
"""

import ast
import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

EPOCH = "epoch"
OWN_RANGE = range


class Channel:
    """JSON objects, one a line, over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rw", encoding="utf-8")

    def close(self) -> None:
        """Ends it on this side; what the other side has not read is lost."""
        with contextlib.suppress(BrokenPipeError):  # the other side may have ended
            self._file.close()

    def send(self, **message: Any) -> None:
        """Sends one."""
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def receive(self) -> dict[str, Any]:
        """The next one.

        Raises:
            EOFError: The other side is gone.
            TimeoutError: The socket has a time limit, and it has passed.
        """
        if not (line := self._file.readline()):
            raise EOFError
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, **message: Any) -> dict[str, Any]:
        """Sends one, and waits for the answer."""
        self.send(**message)
        return self.receive()


def lines_of_loops(source: str) -> frozenset[int]:
    """The lines in which a loop over epochs calls ``range``.

    Loops over epochs are those whose variable is called ``epoch``, wherever they stand; where there are none,
    those outside functions. A loop within another one is part of its epochs.
    """
    found = list(_loops(ast.parse(source), inside=False))
    named = [line for line, name, _ in found if name == EPOCH]
    return frozenset(named or [line for line, _, inside in found if not inside])


def _loops(node: ast.AST, inside: bool) -> Iterator[tuple[int, str, bool]]:
    """The outermost loops over ``range``: the line of its call, the variable, and whether in a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.For) and (line := _line_of_range(child.iter)) is not None:
            yield line, child.target.id if isinstance(child.target, ast.Name) else "", inside
        else:
            enters = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
            yield from _loops(child, inside or enters)


def _line_of_range(iterable: ast.expr) -> int | None:
    for node in ast.walk(iterable):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            return node.lineno
    return None


@dataclass(frozen=True)
class Epochs:
    """The numbers of one loop over epochs, handed out as the other side allows.

    Attributes:
        numbers: What Python's ``range`` would have given.
        channel: The other side. It is told ``event="loop"``, the line and the number of epochs, then
            ``event="epochs"`` with their number and seconds; each time it answers how many ``epochs`` may
            follow, 0 to end the loop. A loop that ends by itself says ``event="left"``, which has no answer.
        line: The line of the loop.
        before: Called with every answer, before the epochs that it allows.
    """

    numbers: range
    channel: Channel
    line: int
    before: Callable[[dict[str, Any]], None]

    def __len__(self) -> int:
        """As many as the script wants, for progress bars."""
        return len(self.numbers)

    def __iter__(self) -> Iterator[int]:
        """Waits for its turn before the first epoch, and whenever those allowed are done."""
        answer = self.channel.ask(event="loop", line=self.line, epochs=len(self.numbers))
        self.before(answer)
        left, began = answer["epochs"], time.perf_counter()
        ended_here = False
        try:
            for number in self.numbers:
                if left == 0:
                    seconds = time.perf_counter() - began
                    answer = self.channel.ask(event="epochs", epochs=answer["epochs"], seconds=seconds)
                    self.before(answer)
                    if (left := answer["epochs"]) == 0:
                        ended_here = True
                        return
                    began = time.perf_counter()
                yield number
                left -= 1
        finally:
            if not ended_here:
                self.channel.send(event="left")


def replacement(
    source: str, channel: Channel, before: Callable[[dict[str, Any]], None]
) -> Callable[..., range | Epochs]:
    """Returns what a script of this text finds under the name ``range``; the others as of :class:`Epochs`."""
    lines = lines_of_loops(source)

    def of_script(*limits: Any) -> range | Epochs:
        line = sys._getframe(1).f_lineno
        numbers = OWN_RANGE(*limits)
        return Epochs(numbers, channel, line, before) if line in lines else numbers

    return of_script
