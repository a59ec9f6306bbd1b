"""Exchanges that send rounded halos.

The mode is chosen by name for the length of a block, and changes what a model computes.
"""

import torch
from torch import Tensor

from onehop.distributed.exchange import Exchange, PendingExchange
from onehop.errors import ArgumentError

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


_MODES = {"exact": PendingExchange, "bfloat16": Rounded}


class Halos:
    """Blocks that decide how the halos of some exchanges arrive; see :meth:`DistributedGraph.halos`.

    Args:
        exchanges: The exchanges of a graph's relations.
        mode: "exact" or "bfloat16".

    Raises:
        ArgumentError: There is no such mode.
    """

    def __init__(self, exchanges: list[Exchange], mode: str) -> None:
        if mode not in _MODES:
            raise ArgumentError(f"mode: expected one of {', '.join(_MODES)}, got {mode!r}.")
        self._exchanges = exchanges
        self._kind = _MODES[mode]
        self._before: list[list[type[PendingExchange]]] = []

    def __enter__(self) -> "Halos":
        """Sets the mode."""
        self._before.append([exchange.kind for exchange in self._exchanges])
        for exchange in self._exchanges:
            exchange.kind = self._kind
        return self

    def __exit__(self, *_: object) -> None:
        """Sets the mode of before; a backward pass may follow."""
        for exchange, kind in zip(self._exchanges, self._before.pop(), strict=True):
            exchange.kind = kind
