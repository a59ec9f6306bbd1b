"""Layers on a simulated machine: which operations the machine runs, and why it does not run others."""

from typing import Any

import torch
from torch import Tensor

from onehop.backends import ledger_of, machine_of, refusal
from onehop.calls import SCORES
from onehop.graph import Graph
from onehop.integrations import session
from onehop.machines.base import AttentionSize, OperatorMachine

SEVERAL_OPERATORS = (
    "machines run reductions and attention of one operator, and this propagation takes several"
)
OWN_MESSAGES = "machines run reductions of rows of features and fused attention, and its messages are neither"

_SUMS = ("sum", "mean")


def backend_of(layer: Any, x: Tensor, reduce: str) -> str:
    """Return the backend for a layer's sum, mean, max or min; empty means the first that takes the tensors.

    The machine identifies the layer by its class and a number. It gets the data through the host's memory,
    also from other devices. Reductions that it refuses run as without a machine.
    """
    now = session.now
    if not now.machine or reduction_refusal(x, reduce) is not None:
        return now.backend
    return f"{now.machine}/{_label(layer)}"


def place_attention(
    layer: Any, graph: Graph, operator: str, x: Tensor, dtype: torch.dtype, has_edges: bool, masked: bool
) -> tuple[str, str]:
    """Return why the machine does not run a layer's attention ("" if it does), and the backend that runs it.

    Args:
        layer: The layer.
        graph: The graph.
        operator: "gat", "gatv2" or "attention".
        x: The sources' features, [num_src, H, C] or [num_src, C].
        dtype: The dtype of the messages.
        has_edges: Whether edges have their own scores or features.
        masked: Whether there is dropout.
    """
    now = session.now
    runs = machine_of(now.machine)
    if not isinstance(runs, OperatorMachine):
        return "this machine computes sums and means, and this is attention", now.backend
    rule, width = SCORES[operator].rule, x.size(-1)
    size = AttentionSize(
        rule=rule,
        heads=x.size(1) if x.dim() == 3 else 1,
        width=width,
        key_width=1 if rule == "gat" else width,
        dtype=dtype,
        edge_scores=has_edges and rule == "gat",
        edge_vectors=has_edges and rule != "gat",
        masked=masked,
    )
    reason = runs.refuse_attention(graph, size)
    if reason is not None:
        return f"the machine {reason}", now.backend
    return "", f"{now.machine}/{_label(layer)}"


def reduction_refusal(x: Tensor, reduce: str) -> str | None:
    """Return why the machine cannot reduce these features; None if it can."""
    machine = session.now.machine
    reason = refusal(machine, x.device, x.dtype)
    if reason is None and reduce not in _SUMS:
        runs = machine_of(machine)
        if not isinstance(runs, OperatorMachine):
            return f"this machine computes sums and means, and this is {reduce}"
        reason = runs.refuse_extremum(x.dtype)
    return None if reason is None else f"the machine {reason}"


def note_elsewhere(layer: Any, backend: str, reason: str) -> None:
    """Records in the machine's report why a layer did not run on the machine; has no effect if it did.

    Args:
        layer: The layer.
        backend: The name of the backend that runs the layer; empty if the framework's own code does.
        reason: Why the machine does not run the layer.
    """
    machine = session.now.machine
    if backend.startswith(f"{machine}/"):
        return
    ledger = ledger_of(machine)
    if ledger is not None:
        ledger.leave(_label(layer), reason)


def _label(layer: Any) -> str:
    """Return the layer's name on a machine: its class and a number."""
    labels = session.now.labels
    label = labels.get(layer)
    if label is None:
        kind = type(layer).__name__
        number = 1 + sum(other.rpartition(" ")[0] == kind for other in labels.values())
        label = labels[layer] = f"{kind} {number}"
    return label
