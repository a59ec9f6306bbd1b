"""PyG's normalisations over all nodes of a graph, for rows of a graph that is divided over processes.

Each follows ``forward`` of the class in ``torch_geometric.nn.norm``, with sums over all processes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import norm

from onehop.distributed.live import divided, in_use
from onehop.distributed.sums import AllRows
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, stand_in

Norm = Callable[[Any, Tensor, AllRows], Tensor]


def rows() -> list[Row]:
    """The table's rows."""
    subtracting = norm.MeanSubtractionNorm
    ours = _mean_subtraction_over_processes(subtracting.forward)
    return [
        Row(subtracting, "forward", ours, subtracting.forward),
        *(
            Row(kind, "forward", _over_processes(kind.forward, formula), kind.forward)
            for kind, formula in (
                (norm.LayerNorm, _layer_norm),
                (norm.GraphNorm, _graph_norm),
                (norm.GraphSizeNorm, _graph_size_norm),
                (norm.PairNorm, _pair_norm),
                (norm.InstanceNorm, _instance_norm),
            )
        ),
    ]


def _over_processes(theirs: Callable[..., Any], formula: Norm) -> Callable[..., Any]:
    used, ours = in_use, _run

    def forward(self, x, batch=None, batch_size=None):  # type: ignore[no-untyped-def]
        if used():
            return ours(theirs, formula, self, x, batch, batch_size)
        return theirs(self, x, batch, batch_size)

    return stand_in(theirs, forward)


def _mean_subtraction_over_processes(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """As the others, with another name for the number of examples."""
    used, ours, formula = in_use, _run, _mean_subtraction_norm

    def forward(self, x, batch=None, dim_size=None):  # type: ignore[no-untyped-def]
        if used():
            return ours(theirs, formula, self, x, batch, dim_size)
        return theirs(self, x, batch, dim_size)

    return stand_in(theirs, forward)


def _run(
    theirs: Callable[..., Any],
    formula: Norm,
    layer: Any,
    x: Tensor,
    batch: Tensor | None,
    batch_size: int | None,
) -> Tensor:
    graph = None if _by_row(layer) else divided(type(layer).__name__, x.size(0))
    if graph is None:
        out: Tensor = theirs(layer, x, batch, batch_size)
        return out
    if x.dim() != 2:
        raise ArgumentError(
            f"x: {type(layer).__name__} over several processes takes [n, F], a row for each owned node, got "
            f"{list(x.shape)}. Reshape it."
        )
    return formula(layer, x, AllRows(graph, x, batch, batch_size))


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
