"""Exchanges that send less, or wait for less, than an exact one: rounded halos, and halos of the step before.

Each is chosen by name, for the length of a block, and changes what a model computes.
"""

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from onehop.distributed.exchange import Exchange, Messages, PendingExchange
from onehop.errors import ArgumentError

MODES = ("exact", "bfloat16", "previous")

_WIDE = (torch.float32, torch.float64)


class Rounded(PendingExchange):
    """Sends rows, and gradients of rows, in bfloat16."""

    def send(self, x: Tensor) -> None:
        """Posts the rows that others need, rounded."""
        self._dtype = x.dtype
        super().send(x.bfloat16() if x.dtype in _WIDE else x)

    def receive(self) -> Tensor:
        """Return [h, F], in the dtype of what was sent."""
        return super().receive().to(self._dtype)

    def send_gradients(self, grad: Tensor) -> None:
        """Posts the gradients of the halo's rows, rounded."""
        super().send_gradients(grad.bfloat16() if grad.dtype in _WIDE else grad)

    def receive_gradients(self) -> Tensor:
        """Return [s, F], in the dtype of the rows: they are added up in it."""
        return super().receive_gradients().to(self._dtype)


@dataclass(slots=True)
class _Kept:
    """Messages that were sent at one place of the step before, and may still be in transit."""

    rows: Messages | None = None
    gradients: Messages | None = None


@dataclass(slots=True, weakref_slot=True, eq=False)
class Steps:
    """The exchanges of a step, by their order in it.

    When it goes, what was sent in the last step is waited for: a message that arrives where nobody expects it
    any longer blocks all that follow it.

    Attributes:
        kept: By place, columns and dtype.
        place: Number of exchanges that have begun in this step.
    """

    kept: dict[tuple[int, int, torch.dtype], _Kept] = field(default_factory=dict)
    place: int = 0

    def __post_init__(self) -> None:
        """Has the last messages waited for, unless the process ends before."""
        weakref.finalize(self, _wait_for_all, self.kept).atexit = False


def _wait_for_all(kept: dict[tuple[int, int, torch.dtype], _Kept]) -> None:
    for each in kept.values():
        for messages in (each.rows, each.gradients):
            if messages is not None:
                messages.wait()


class Previous(PendingExchange):
    """Gives the rows that were sent at this place of the step before, and the gradients that were.

    Nothing is there before the first step, which waits for its own. Rows are posted in every step, so that
    they have a whole step to travel.
    """

    def __init__(self, exchange: Exchange, steps: Steps) -> None:
        super().__init__(exchange)
        self._steps = steps
        self._place = steps.place
        steps.place += 1

    def send(self, x: Tensor) -> None:
        """Posts the rows that others need, for their next step."""
        self._kept = self._steps.kept.setdefault((self._place, x.size(1), x.dtype), _Kept())
        super().send(x)

    def receive(self) -> Tensor:
        """Return [h, F]: the halo's rows of the step before."""
        before, self._kept.rows = self._kept.rows, self._arrived()
        # The first step's rows are given twice, and each time as a tensor of its own.
        return self._kept.rows.wait().clone() if before is None else before.wait()

    def receive_gradients(self) -> Tensor:
        """Return [s, F]: gradients of the rows that were sent in the step before."""
        before, self._kept.gradients = self._kept.gradients, self._arrived()
        return (self._kept.gradients if before is None else before).wait()


class Halos:
    """Blocks that decide how the halos of some exchanges arrive; see :meth:`DistributedGraph.halos`.

    Args:
        exchanges: Those of a graph's relations.
        mode: One of :data:`MODES`.

    Raises:
        ArgumentError: There is no such mode.
    """

    def __init__(self, exchanges: list[Exchange], mode: str) -> None:
        if mode not in MODES:
            raise ArgumentError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}.")
        self.mode = mode
        self._steps = [(exchange, Steps()) for exchange in exchanges]
        self._before: list[Callable[[], PendingExchange] | None] = []

    def __enter__(self) -> "Halos":
        """Begins a step."""
        if self._before:
            raise ArgumentError(
                "halos: a block of these halos is inside another one; give each step one block."
            )
        for exchange, steps in self._steps:
            self._before.append(exchange.kind)
            steps.place = 0
            exchange.kind = self._kind(exchange, steps)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it; a backward pass may follow."""
        for (exchange, _steps), kind in zip(self._steps, self._before, strict=True):
            exchange.kind = kind
        self._before = []

    def _kind(self, exchange: Exchange, steps: Steps) -> Callable[[], PendingExchange] | None:
        if self.mode == "exact":
            return None
        if self.mode == "bfloat16":
            return functools.partial(Rounded, exchange)
        return functools.partial(Previous, exchange, steps)
