"""Propagations that PyG's own steps serve best: those over few edges."""

from typing import Any

import torch
from torch import Tensor

from onehop.integrations import reports
from onehop.integrations.pyg.conditions import ClassRecord, layer_reason, reduction_of
from onehop.integrations.pyg.pending import settled
from onehop.integrations.pyg.recognise import Form
from onehop.integrations.pyg.steps import propagated

_SIZE = {"size"}
_ENDS = 2
_FEW = "few edges: no graph is made"


def over_few(record: ClassRecord, layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> Tensor | None:
    """The result of ``propagate`` over few edges; None where something is in the way.

    Args:
        record: What is known of the layer's class, as it is now.
        layer: The layer.
        edge_index: What ``propagate`` was called with, and
        kwargs: what else.
    """
    reduce, reason = reduction_of(layer)
    if (
        reason is not None
        or record.arguments is None
        or type(edge_index) is not Tensor
        or edge_index.dtype is not torch.int64
        or edge_index.layout is not torch.strided
        or edge_index.shape[0] != _ENDS
        or (kwargs.keys() != record.names and kwargs.keys() - _SIZE != record.names)
        or layer_reason(layer, record.fuses) is not None
    ):
        return None
    if record.attends:
        kwargs = settled(kwargs)
    out = propagated(layer, record.arguments, reduce, edge_index, kwargs)
    if out is not None and reports.listener is not None:
        reports.record(reports.Call(layer, None, _shown(record, kwargs), reduce, "torch", _FEW))
    return out


def _shown(record: ClassRecord, kwargs: dict[str, Any]) -> str:
    """The messages over few edges, as ``explain`` shows them."""
    form = record.form
    if not isinstance(form, Form):
        return "its message, by PyG" if form is None else "attention, by PyG"
    weighted = form.weight is not None and kwargs[form.weight] is not None
    return form.name if weighted else form.name.removesuffix(" * weight")
