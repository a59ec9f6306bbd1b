"""PyG's normalisations over all nodes of a graph, for divided rows.

Each follows ``forward`` of the class in ``torch_geometric.nn.norm``, with sums over all processes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import norm

from onehop.distributed.converted import may_be_divided, processes_of
from onehop.distributed.sums import AllRows
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, stand_in

Norm = Callable[[Any, Tensor, AllRows], Tensor]


def rows() -> list[Row]:
    """The table's rows."""
    return [
        Row(kind, "forward", _over_processes(kind.forward, formula), kind.forward)
        for kind, formula in (
            (norm.LayerNorm, _layer_norm),
            (norm.GraphNorm, _graph_norm),
            (norm.GraphSizeNorm, _graph_size_norm),
            (norm.PairNorm, _pair_norm),
            (norm.MeanSubtractionNorm, _mean_subtraction_norm),
            (norm.InstanceNorm, _instance_norm),
        )
    ]


def _over_processes(theirs: Callable[..., Any], formula: Norm) -> Callable[..., Any]:
    divided, by_row, ours = may_be_divided, _by_row, _run

    # MeanSubtractionNorm has another name for the number of examples.
    def forward(self, x, batch=None, *size, **named_size):  # type: ignore[no-untyped-def]
        if divided() and not by_row(self):
            return ours(formula, self, x, batch, *size, *named_size.values())
        return theirs(self, x, batch, *size, **named_size)

    return stand_in(theirs, forward)


def _run(formula: Norm, layer: Any, x: Tensor, batch: Tensor | None, batch_size: int | None = None) -> Tensor:
    name = type(layer).__name__
    group = processes_of(name).group
    if x.dim() != 2:
        raise ArgumentError(
            f"x: {name} over several processes takes [n, F], one row for each node or edge, got "
            f"{list(x.shape)}. Reshape it."
        )
    return formula(layer, x, AllRows(group, x, batch, batch_size))


def _by_row(layer: Any) -> bool:
    """True where the layer, as it is set up, looks at each row on its own."""
    if isinstance(layer, norm.LayerNorm):
        return bool(layer.mode != "graph")
    if isinstance(layer, norm.InstanceNorm):
        return bool(layer.track_running_stats and not layer.training)
    return False


def _layer_norm(layer: Any, x: Tensor, everyone: AllRows) -> Tensor:
    numbers = everyone.counts.clamp(min=1) * x.size(1)
    x = x - everyone.of_rows(everyone.sum(x).sum(1, keepdim=True) / numbers)
    variance = everyone.sum(x.square()).sum(1, keepdim=True) / numbers
    # As PyG has it: eps goes to the deviation where there is no batch, and to the variance where there is.
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
