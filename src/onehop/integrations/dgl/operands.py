"""The conditions on an operator's graph and tensors, each with the sentence that says why it fails."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from onehop.backends import refusal
from onehop.integrations.dgl.graphs import Structure, device_of, structure_of
from onehop.integrations.dgl.running import selection_reason
from onehop.ops.contexts import context_reason

FLOATS = (torch.float32, torch.float64)

LEFT_TO_DGL = "DGL is left to report what does not fit"


def structure_for(index: Any) -> Structure | str:
    """The structure of ``g._graph``, or why its operators run DGL's own code."""
    reason = context_reason() or selection_reason()
    if reason is not None:
        return reason
    if torch._C._is_any_autocast_enabled():
        return "autocast decides on the dtypes of its operands"
    if index.number_of_etypes() != 1:
        return f"its graph has {index.number_of_etypes()} types of edges, and onehop takes one at a time"
    device = device_of(index)
    # Every dtype that has a fast path has one on the CPU.
    reason = None if device.type == "cpu" else refusal("", device, torch.float32)
    if reason is not None:
        return f"its graph is on {device}, which has no backend: {reason}"
    return structure_of(index, device) or "its graph has too many nodes"


def tensor_reason(name: str, x: Any, rows: int, structure: Structure) -> str | None:
    """Return why a tensor with a row for each node or edge has no fast path; None if it has."""
    if type(x) is not Tensor and type(x) is not Parameter:
        return f"the {name} are of type {type(x).__name__}"
    if x.dtype not in FLOATS:
        return f"the {name} are {str(x.dtype).removeprefix('torch.')}, not float32 or float64"
    if x.layout is not torch.strided:
        return f"the {name} are not a dense tensor"
    if x.device != structure.device:
        return LEFT_TO_DGL
    if x.dim() == 0 or x.size(0) != rows:
        return LEFT_TO_DGL
    return None
