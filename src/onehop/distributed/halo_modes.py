"""Exchanges that send less, or wait for less, than an exact one: rounded halos, and halos of the step before.

Each is chosen by name, for the length of a block, and changes what a model computes.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
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
    """What was sent at one place of the step before, and may still be in transit."""

    rows: Messages | None = None
    gradients: Messages | None = None


@dataclass(slots=True)
class Steps:
    """The exchanges of a step, by their order in it.

    Attributes:
        kept: By place, columns and dtype.
        place: Number of exchanges that have begun in this step.
    """

    kept: dict[tuple[int, int, torch.dtype], _Kept] = field(default_factory=dict)
    place: int = 0


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


_steps: weakref.WeakKeyDictionary[Exchange, Steps] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def chosen(exchanges: list[Exchange], mode: str) -> Iterator[None]:
    """Exchanges inside the block are of this mode; see :meth:`onehop.distributed.DistributedGraph.halos`."""
    if mode not in MODES:
        raise ArgumentError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}.")
    before = [exchange.kind for exchange in exchanges]
    for exchange in exchanges:
        exchange.kind = _kind(exchange, mode)
    try:
        yield
    finally:
        for exchange, kind in zip(exchanges, before, strict=True):
            exchange.kind = kind


def _kind(exchange: Exchange, mode: str) -> Callable[[], PendingExchange] | None:
    if mode == "exact":
        return None
    if mode == "bfloat16":
        return lambda: Rounded(exchange)
    steps = _steps.setdefault(exchange, Steps())
    steps.place = 0
    return lambda: Previous(exchange, steps)
