"""The backend of a layer's propagation: the patch's, or the first that takes its tensors."""

from typing import Any

from torch import Tensor

from onehop.backends import ledger_of, refusal
from onehop.integrations import session

# The reductions that machines compute.
REDUCTIONS = ("sum", "mean")


def backend_of(layer: Any, x: Tensor, reduce: str) -> str:
    """The backend for a layer's sum, mean, max or min of these features; empty means the first that can.

    A machine will know the layer by its class and a number. It gets its data through the host's memory,
    wherever they are; what it does not take runs as without it.
    """
    now = session.now
    machine = now.machine
    if not machine or reduce not in REDUCTIONS or refusal(machine, x.device, x.dtype) is not None:
        return now.backend
    return f"{machine}/{_label(layer)}"


def note_elsewhere(layer: Any, task: Any, reduces: bool) -> None:
    """Writes into the machine's report why a layer did not run on it, unless it does.

    Args:
        layer: The layer.
        task: What was prepared for its propagation: a sum or mean for the machine, something else for a
            backend of the host, or the sentence why the framework's own code runs.
        reduces: Whether the task is a sum, mean, max or min of rows of features.
    """
    machine = session.now.machine
    if str(getattr(task, "backend", "")).startswith(f"{machine}/"):
        return
    ledger = ledger_of(machine)
    if ledger is not None:
        ledger.leave(_label(layer), task if isinstance(task, str) else _reason(machine, task, reduces))


def _reason(machine: str, task: Any, reduces: bool) -> str:
    if not reduces:
        return "machines run sums and means of rows of features, and its messages are attention or compiled"
    if task.reduce not in REDUCTIONS:
        return f"machines compute sums and means, and this is {task.reduce}"
    return f"the machine {refusal(machine, task.x.device, task.x.dtype)}"


def _label(layer: Any) -> str:
    """The layer's name on a machine: its class and a number."""
    labels = session.now.labels
    label = labels.get(layer)
    if label is None:
        kind = type(layer).__name__
        number = 1 + sum(other.rpartition(" ")[0] == kind for other in labels.values())
        label = labels[layer] = f"{kind} {number}"
    return label
