"""The backend of a layer's propagation: the patch's, or the first that takes its tensors."""

from typing import Any

from torch import Tensor

from onehop.backends import ledger_of, machine_of, refusal
from onehop.integrations import session
from onehop.integrations.pyg.attention_task import AttentionTask
from onehop.machines.base import AttentionSize, OperatorMachine

_SUMS = ("sum", "mean")
# The rules of fused operators.
_RULES = {"gat": "gat", "gatv2": "gatv2", "attention": "dot"}


def backend_of(layer: Any, x: Tensor, reduce: str) -> str:
    """The backend for a layer's sum, mean, max or min of these features; empty means the first that can.

    A machine will know the layer by its class and a number. It gets its data through the host's memory,
    wherever they are; what it does not take runs as without it.
    """
    now = session.now
    if not now.machine or _refusal(now.machine, x, reduce) is not None:
        return now.backend
    return f"{now.machine}/{_label(layer)}"


def place_attention(layer: Any, task: AttentionTask) -> str:
    """The backend for a layer's attention beside a machine, and in the task the reason if it is not that."""
    now = session.now
    task.aside = _attention_refusal(now.machine, layer, task)
    return now.backend if task.aside else f"{now.machine}/{_label(layer)}"


def note_elsewhere(layer: Any, task: Any, reduces: bool) -> None:
    """Writes into the machine's report why a layer did not run on it, unless it does.

    Args:
        layer: The layer.
        task: What was prepared for its propagation: something for the machine, something else for a
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
    if isinstance(task, AttentionTask) and task.aside:
        return task.aside
    if not reduces:
        return "machines run reductions of rows of features and fused attention, and its messages are neither"
    if task.first:
        return "the gradient of its max or min goes to one edge alone, and machines do not tell which won"
    return str(_refusal(machine, task.x, task.reduce))


def _refusal(machine: str, x: Tensor, reduce: str) -> str | None:
    """The sentence why a machine does not reduce these features; None if it does."""
    reason = refusal(machine, x.device, x.dtype)
    if reason is None and reduce not in _SUMS:
        runs = machine_of(machine)
        if not isinstance(runs, OperatorMachine):
            return f"this machine computes sums and means, and this is {reduce}"
        reason = runs.refuse_extremum(x.dtype)
    return None if reason is None else f"the machine {reason}"


def _attention_refusal(machine: str, layer: Any, task: AttentionTask) -> str:
    """The sentence why a machine does not run an attention; empty if it does."""
    if not task.fused:
        return "machines run reductions and attention of one operator, and this propagation takes several"
    runs = machine_of(machine)
    if not isinstance(runs, OperatorMachine):
        return "this machine computes sums and means, and this is attention"
    heads = task.x.size(1) if task.x.dim() == 3 else 1
    width = task.x.size(-1)
    rule = _RULES[task.fused]
    size = AttentionSize(
        rule=rule,
        heads=heads,
        width=width,
        key_width=1 if rule == "gat" else width,
        dtype=task.dtype or task.x.dtype,
        edge_scores=task.has_edges and rule == "gat",
        edge_vectors=task.has_edges and rule != "gat",
        masked=bool(layer.training and getattr(layer, "dropout", 0)),
    )
    reason = runs.refuse_attention(task.graph, size)
    return "" if reason is None else f"the machine {reason}"


def _label(layer: Any) -> str:
    """The layer's name on a machine: its class and a number."""
    labels = session.now.labels
    label = labels.get(layer)
    if label is None:
        kind = type(layer).__name__
        number = 1 + sum(other.rpartition(" ")[0] == kind for other in labels.values())
        label = labels[layer] = f"{kind} {number}"
    return label
