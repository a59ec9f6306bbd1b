"""Who runs a layer's propagation: the backend that the patch names, or the first that takes its tensors."""

import weakref
from typing import Any

from torch import Tensor

from onehop.backends import is_machine, refusal

# The machine that sums and means run on, by its backend's name, and the labels of its layers.
_machine = ""
_labels: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()
# The backend that everything runs on; empty means the first that takes the tensors.
_named = ""


def run_on(backend: str) -> None:
    """Sets the machine for sums and means, or the backend for everything; empty means the best there is."""
    global _machine, _named
    _machine, _named = (backend, "") if is_machine(backend) else ("", backend)
    _labels.clear()


def named() -> str:
    """The backend that everything runs on, by name; empty means the first that takes the tensors."""
    return _named


def backend_of(layer: Any, x: Tensor, reduce: str) -> str:
    """The backend for a layer's sum, mean, max or min of these features; empty means the first that can.

    A machine will know the layer by its class and a number. It gets its data through the host's memory,
    wherever they are; what it does not take runs as without it.
    """
    if not _machine or reduce not in ("sum", "mean") or refusal(_machine, x.device, x.dtype) is not None:
        return _named
    label = _labels.get(layer)
    if label is None:
        kind = type(layer).__name__
        number = 1 + sum(other.rpartition(" ")[0] == kind for other in _labels.values())
        label = _labels[layer] = f"{kind} {number}"
    return f"{_machine}/{label}"


def reason_against(x: Tensor, backend: str) -> str | None:
    """Why nobody runs on features such as these; None if the backend of that name, or any, does."""
    if x.is_cpu and not backend:
        return None  # every dtype that has a fast path has one there
    reason = refusal(backend, x.device, x.dtype)
    return None if reason is None else f"features of {x.dtype} on {x.device} have no backend: {reason}"


def apart_reason(edges: Tensor, x: Tensor, *others: Tensor | None) -> str | None:
    """Why operands on several devices have no fast path; None if all are where the edges are."""
    on_cpu = edges.is_cpu  # which is told faster than a device is
    for each in (x, *others):
        if each is not None and (each.is_cpu is not on_cpu or not (on_cpu or each.device == edges.device)):
            return (
                f"edge_index is on {edges.device} and an operand on {each.device}; "
                f"PyG is left to report what does not fit"
            )
    return None
