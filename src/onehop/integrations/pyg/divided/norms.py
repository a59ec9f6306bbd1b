"""Normalisations of divided rows, with statistics over all processes; and dropout, which is only checked.

Each of PyG's normalisations follows ``forward`` of its class in ``torch_geometric.nn.norm``. Dropout remains
torch's own: a converted model draws on each process separately. Without conversion, processes that were
seeded alike would drop the same positions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import norm

from onehop.distributed.converted import may_be_divided, processes_of
from onehop.distributed.sums import AllRows
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, replacing

Norm = Callable[[Any, Tensor, AllRows], Tensor]


def rows() -> list[Row]:
    """The rows of the patch table."""
    functional = torch.nn.functional
    formulas: dict[type, Norm] = {
        norm.LayerNorm: _layer_norm,
        norm.GraphNorm: _graph_norm,
        norm.GraphSizeNorm: _graph_size_norm,
        norm.PairNorm: _pair_norm,
        norm.MeanSubtractionNorm: _mean_subtraction_norm,
        norm.InstanceNorm: _instance_norm,
    }
    return [
        replacing(functional, "batch_norm", batch_norm, where=may_be_divided),
        replacing(norm.BatchNorm, "forward", _single_element, where=may_be_divided),
        replacing(functional, "dropout", dropout, where=may_be_divided),
        *(
            replacing(kind, "forward", partial(_normalised, formula), where=may_be_divided)
            for kind, formula in formulas.items()
        ),
    ]


def dropout(_: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> None:
    """Checks that a converted model runs."""
    if training and p:
        processes_of("dropout")


def _single_element(_: Any, layer: Any, x: Tensor) -> Tensor | None:
    """PyG's BatchNorm, which would take the only row of a process for the whole batch."""
    normalised: Tensor | None = layer.module(x) if layer.allow_single_element and layer.training else None
    return normalised


def batch_norm(
    _: Any,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """Normalises in training with statistics over all processes; None in evaluation, where torch does."""
    if not training:
        return None
    group = processes_of("batch normalisation").group
    x = input
    if x.dim() != 2:
        raise ArgumentError(
            f"input: batch normalisation over several processes takes [n, F], one row for each node or edge, "
            f"got {list(x.shape)}. Reshape it."
        )
    given = x.dtype
    if given in (torch.bfloat16, torch.float16):
        x = x.float()  # as torch does inside
    everyone = AllRows(group, x)
    count = int(everyone.counts)
    if count < 2:
        raise ArgumentError(
            f"input: batch normalisation in training expected two rows or more, got {count} on all "
            "processes. Call eval() first."
        )
    mean = everyone.mean(x)
    centred = x - everyone.of_rows(mean)
    variance = everyone.mean(centred.square())
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean[0].to(running_mean.dtype), momentum)
        if running_var is not None:
            unbiased = variance[0] * (count / (count - 1))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    out = centred * everyone.of_rows((variance + eps).rsqrt())
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out.to(given)


def _normalised(
    formula: Norm,
    theirs: Any,
    layer: Any,
    x: Tensor,
    batch: Tensor | None = None,
    *size: int | None,
    **named_size: int | None,
) -> Tensor | None:
    """One of PyG's normalisations; None where the layer treats each row on its own.

    MeanSubtractionNorm has another name for the number of examples than the others.
    """
    if _by_row(layer):
        return None
    name = type(layer).__name__
    group = processes_of(name).group
    if x.dim() != 2:
        raise ArgumentError(
            f"x: {name} over several processes takes [n, F], one row for each node or edge, got "
            f"{list(x.shape)}. Reshape it."
        )
    return formula(layer, x, AllRows(group, x, batch, *size, *named_size.values()))


def _by_row(layer: Any) -> bool:
    if isinstance(layer, norm.LayerNorm):
        return bool(layer.mode != "graph")
    return isinstance(layer, norm.InstanceNorm) and bool(layer.track_running_stats and not layer.training)


def _layer_norm(layer: Any, x: Tensor, everyone: AllRows) -> Tensor:
    numbers = everyone.counts.clamp(min=1) * x.size(1)
    x = x - everyone.of_rows(everyone.sum(x).sum(1, keepdim=True) / numbers)
    variance = everyone.sum(x.square()).sum(1, keepdim=True) / numbers
    # As in PyG: eps is added to the deviation without a batch, and to the variance with one.
    deviation = (variance + layer.eps).sqrt() if everyone.batched else variance.sqrt() + layer.eps
    out = x / everyone.of_rows(deviation)
    if layer.weight is not None and layer.bias is not None:
        out = out * layer.weight + layer.bias
    return out


def _graph_norm(layer: Any, x: Tensor, everyone: AllRows) -> Tensor:
    out = x - everyone.of_rows(everyone.mean(x)) * layer.mean_scale
    deviation = (everyone.mean(out.square()) + layer.eps).sqrt()
    normalised: Tensor = layer.weight * out / everyone.of_rows(deviation) + layer.bias
    return normalised


def _graph_size_norm(layer: Any, x: Tensor, everyone: AllRows) -> Tensor:
    return x * everyone.of_rows(everyone.counts.pow(-0.5))


def _pair_norm(layer: Any, x: Tensor, everyone: AllRows) -> Tensor:
    x = x - everyone.of_rows(everyone.mean(x))
    if layer.scale_individually:
        out: Tensor = layer.scale * x / (layer.eps + x.norm(2, -1, keepdim=True))
        return out
    squares = everyone.mean(x.square().sum(1, keepdim=True))
    out = layer.scale * x / everyone.of_rows((layer.eps + squares).sqrt())
    return out


def _mean_subtraction_norm(layer: Any, x: Tensor, everyone: AllRows) -> Tensor:
    return x - everyone.of_rows(everyone.mean(x))


def _instance_norm(layer: Any, x: Tensor, everyone: AllRows) -> Tensor:
    mean = everyone.mean(x)
    x = x - everyone.of_rows(mean)
    squares = everyone.sum(x.square())
    with torch.no_grad():
        unbiased = squares / (everyone.counts - 1).clamp(min=1)
        for running, now in ((layer.running_mean, mean), (layer.running_var, unbiased)):
            if running is not None:
                running.lerp_(now.mean(0).to(running.dtype), layer.momentum)
    variance = squares / everyone.counts.clamp(min=1)
    out = x / everyone.of_rows((variance + layer.eps).sqrt())
    if layer.weight is not None and layer.bias is not None:
        out = out * layer.weight + layer.bias
    return out
