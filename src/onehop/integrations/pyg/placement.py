"""The backend of a layer's propagation: the patch's, or the first that takes its tensors."""

from typing import Any

from torch import Tensor

from onehop.backends import refusal
from onehop.integrations import session


def backend_of(layer: Any, x: Tensor, reduce: str) -> str:
    """The backend for a layer's sum, mean, max or min of these features; empty means the first that can.

    A machine will know the layer by its class and a number. It gets its data through the host's memory,
    wherever they are; what it does not take runs as without it.
    """
    now = session.now
    machine = now.machine
    if not machine or reduce not in ("sum", "mean") or refusal(machine, x.device, x.dtype) is not None:
        return now.backend
    label = now.labels.get(layer)
    if label is None:
        kind = type(layer).__name__
        number = 1 + sum(other.rpartition(" ")[0] == kind for other in now.labels.values())
        label = now.labels[layer] = f"{kind} {number}"
    return f"{machine}/{label}"
