"""Propagations that PyG's own steps serve best: over few edges, and of messages that fit in the cache."""

from typing import Any

import torch
from torch import Tensor

from onehop.integrations import reports
from onehop.integrations.pyg.conditions import ClassRecord, layer_reason, reduction_of
from onehop.integrations.pyg.pending import settled
from onehop.integrations.pyg.recognise import Form
from onehop.integrations.pyg.steps import propagated
from onehop.ops.contexts import context_reason

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
    if reason is not None:
        return None
    out = _by_steps(record, layer, reduce, edge_index, kwargs)
    if out is not None and reports.listener is not None:
        reports.record(reports.Call(layer, None, _shown(record, kwargs), reduce, "torch", _FEW))
    return out


def as_pyg(record: ClassRecord, layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> Tensor | None:
    """The result of a ``propagate`` that was refused for its size; None where PyG's own is to run.

    Args:
        record: What is known of the layer's class.
        layer: The layer.
        edge_index: What ``propagate`` was called with, and
        kwargs: what else.
    """
    if record.block_reason is not None or context_reason() is not None or not record.holds(type(layer)):
        return None
    reduce, _ = reduction_of(layer)
    return _by_steps(record, layer, reduce, edge_index, kwargs)


def _by_steps(
    record: ClassRecord, layer: Any, reduce: str, edge_index: Any, kwargs: dict[str, Any]
) -> Tensor | None:
    if (
        record.arguments is None
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
    return propagated(layer, record.arguments, reduce, edge_index, kwargs)


def _shown(record: ClassRecord, kwargs: dict[str, Any]) -> str:
    """The messages over few edges, as ``explain`` shows them."""
    form = record.form
    if not isinstance(form, Form):
        return "attention, by PyG"
    weighted = form.weight is not None and kwargs[form.weight] is not None
    return form.name if weighted else form.name.removesuffix(" * weight")
