"""Functions that mix rows, in models converted for several processes: exact results, or an error.

Without a divided graph, PyG's and torch's own functions run. Of onehop, this file imports only
``onehop.distributed`` and the rows of the patch.

Normalisations, with statistics over all processes, and relational layers are exact. Each normalisation
follows ``forward`` of its class in ``torch_geometric.nn.norm``. Dropout remains torch's own: in a converted
model, each process draws separately. Without the conversion, processes with equal seeds would drop the same
positions.

Operations that need the rows of all nodes on one process raise an error. After a read-out, which reduces all
rows to one, every process would compute its loss from the same row, and only the program knows how to add up
these losses; it does so by a sum over the processes. Some other layers mix all nodes in ways that several
processes cannot compute. Layers that compute with the edges themselves are not listed here, because the edges
of a part raise the error.
"""

import importlib
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.nn import FastRGCNConv, HeteroBatchNorm, RGCNConv, norm
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.pool import glob

from onehop.distributed.checks import check_rows, check_sources, edges_reason
from onehop.distributed.converted import among_edges, may_be_divided, processes_of, reduces_edges
from onehop.distributed.graph import LocalEdges
from onehop.distributed.sums import AllRows
from onehop.errors import ArgumentError
from onehop.integrations.rows import Function, Row, is_own, replacing

Norm = Callable[[Any, Tensor, AllRows], Tensor]

_REFUSED = (
    ("torch.nn", "MultiheadAttention", "forward"),
    ("torch_geometric.nn", "DeepGraphInfomax", "forward"),
    ("torch_geometric.nn", "CorrectAndSmooth", "correct"),
    ("torch_geometric.nn", "LPFormer", "forward"),
    ("torch_geometric.nn", "PANPooling", "forward"),
    ("torch_geometric.nn", "MemPooling", "forward"),
    ("torch_geometric.nn", "HeteroBatchNorm", "forward"),
    ("torch_geometric.nn", "DiffGroupNorm", "group_distance_ratio"),
    ("torch_geometric.nn.models", "RECT_L", "get_semantic_labels"),
    ("torch_geometric.nn.attention", "PerformerAttention", "forward"),
    ("torch_geometric.nn.attention", "SGFormerAttention", "forward"),
    ("torch_geometric.nn.attention", "PolynormerAttention", "forward"),
    ("torch_geometric.nn.attention", "QFormer", "forward"),
)


def rows() -> list[Row]:
    """Return the rows of the patch table, for the classes that the installed PyG has."""
    functional = torch.nn.functional
    formulas: dict[type, Norm] = {
        norm.LayerNorm: _layer_norm,
        norm.GraphNorm: _graph_norm,
        norm.GraphSizeNorm: _graph_size_norm,
        norm.PairNorm: _pair_norm,
        norm.MeanSubtractionNorm: _mean_subtraction_norm,
        norm.InstanceNorm: _instance_norm,
    }
    pools = {
        glob.global_add_pool: _global_add_pool,
        glob.global_mean_pool: _global_mean_pool,
        glob.global_max_pool: _global_max_pool,
    }
    # If another library has replaced a function, its code is not PyG's and stays.
    pools = {theirs: ours for theirs, ours in pools.items() if is_own(theirs)}
    _theirs.update({theirs.__name__: _copy(theirs) for theirs in pools})
    bodies: list[tuple[Any, str, Function]] = [
        (functional, "batch_norm", batch_norm),
        (norm.BatchNorm, "forward", _single_element),
        (functional, "dropout", dropout),
        *((kind, "forward", partial(_normalised, formula)) for kind, formula in formulas.items()),
        (Aggregation, "__call__", _aggregate),
    ]
    for module, name, method in _REFUSED:
        kind = getattr(importlib.import_module(module), name, None)
        if kind is not None:
            whole = name if method == "forward" else f"{name}.{method}"
            bodies.append((kind, method, partial(_mix, whole)))
    return [
        *(replacing(*body, where=may_be_divided) for body in bodies),
        *(_CodeRow(theirs, "__code__", ours.__code__, theirs.__code__) for theirs, ours in pools.items()),
        *(replacing(kind, "forward", relational, relational) for kind in (RGCNConv, FastRGCNConv)),
    ]


def dropout(_: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> None:
    """Raises an error if dropout runs on rows of a divided graph outside of a converted model."""
    if training and p:
        processes_of("dropout")


def _single_element(_: Any, layer: Any, x: Tensor) -> Tensor | None:
    """Runs PyG's BatchNorm, which would take the only row of a process for the whole batch."""
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
    """Normalises with statistics over all processes in training; None in evaluation, when torch runs."""
    if not training:
        return None
    group = processes_of("batch normalisation").group
    x = input
    if x.dim() != 2:
        raise ArgumentError(
            f"input: batch normalisation over several processes takes [n, F], one row for each node or edge, "
            f"got {list(x.shape)}. Reshape it."
        )
    dtype = x.dtype
    if dtype in (torch.bfloat16, torch.float16):
        x = x.float()  # as torch does internally
    whole = AllRows(group, x)
    count = int(whole.counts)
    if count < 2:
        raise ArgumentError(
            f"input: batch normalisation in training expected two rows or more, got {count} on all "
            "processes. Call eval() first."
        )
    mean = whole.mean(x)
    centred = x - whole.of_rows(mean)
    variance = whole.mean(centred.square())
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean[0].to(running_mean.dtype), momentum)
        if running_var is not None:
            unbiased = variance[0] * (count / (count - 1))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    out = centred * whole.of_rows((variance + eps).rsqrt())
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out.to(dtype)


def _normalised(
    formula: Norm,
    theirs: Any,
    layer: Any,
    x: Tensor,
    batch: Tensor | None = None,
    *size: int | None,
    **named_size: int | None,
) -> Tensor | None:
    """Runs one of PyG's normalisations; None if the layer normalises each row separately.

    The parameter for the number of examples has another name in MeanSubtractionNorm than in the other
    classes.
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


def _layer_norm(layer: Any, x: Tensor, whole: AllRows) -> Tensor:
    numbers = whole.counts.clamp(min=1) * x.size(1)
    x = x - whole.of_rows(whole.sum(x).sum(1, keepdim=True) / numbers)
    variance = whole.sum(x.square()).sum(1, keepdim=True) / numbers
    # As in PyG: eps is added to the deviation without a batch, and to the variance with one.
    deviation = (variance + layer.eps).sqrt() if whole.batched else variance.sqrt() + layer.eps
    out = x / whole.of_rows(deviation)
    if layer.weight is not None and layer.bias is not None:
        out = out * layer.weight + layer.bias
    return out


def _graph_norm(layer: Any, x: Tensor, whole: AllRows) -> Tensor:
    out = x - whole.of_rows(whole.mean(x)) * layer.mean_scale
    deviation = (whole.mean(out.square()) + layer.eps).sqrt()
    normalised: Tensor = layer.weight * out / whole.of_rows(deviation) + layer.bias
    return normalised


def _graph_size_norm(layer: Any, x: Tensor, whole: AllRows) -> Tensor:
    return x * whole.of_rows(whole.counts.pow(-0.5))


def _pair_norm(layer: Any, x: Tensor, whole: AllRows) -> Tensor:
    x = x - whole.of_rows(whole.mean(x))
    if layer.scale_individually:
        out: Tensor = layer.scale * x / (layer.eps + x.norm(2, -1, keepdim=True))
        return out
    squares = whole.mean(x.square().sum(1, keepdim=True))
    out = layer.scale * x / whole.of_rows((layer.eps + squares).sqrt())
    return out


def _mean_subtraction_norm(layer: Any, x: Tensor, whole: AllRows) -> Tensor:
    return x - whole.of_rows(whole.mean(x))


def _instance_norm(layer: Any, x: Tensor, whole: AllRows) -> Tensor:
    mean = whole.mean(x)
    x = x - whole.of_rows(mean)
    squares = whole.sum(x.square())
    with torch.no_grad():
        unbiased = squares / (whole.counts - 1).clamp(min=1)
        for running, now in ((layer.running_mean, mean), (layer.running_var, unbiased)):
            if running is not None:
                running.lerp_(now.mean(0).to(running.dtype), layer.momentum)
    variance = squares / whole.counts.clamp(min=1)
    out = x / whole.of_rows((variance + layer.eps).sqrt())
    if layer.weight is not None and layer.bias is not None:
        out = out * layer.weight + layer.bias
    return out


def relational(
    theirs: Callable[..., Any], layer: Any, x: Any, edge_index: Any, edge_type: Any = None
) -> Tensor | None:
    """Runs RGCNConv or FastRGCNConv on a part of a graph; None for other edges.

    PyG's code runs on a bipartite graph, from owned and received rows to owned rows. It selects the edges of
    each relation itself. So the rows are received once for all relations.
    """
    if type(edge_index) is not LocalEdges:
        return None
    graph = edge_index.graph
    if layer.flow != "source_to_target":
        raise ArgumentError("flow: 'target_to_source' has no path over several processes; flip the edges.")
    if not isinstance(edge_type, Tensor):
        raise ArgumentError(
            f"edge_type: expected a type for each of the {graph.num_edges} edges that end in nodes of rank "
            f"{graph.rank}, got {type(edge_type).__name__}. Take them with graph.edge_rows."
        )
    reason = edges_reason("edge_type", edge_type, graph)
    if reason is not None:
        raise ArgumentError(f"{reason}. Take them with graph.edge_rows.")
    if x is not None and not isinstance(x, Tensor) and (len(x) != 2 or x[1] is None):
        raise ArgumentError("x: expected rows of the owned nodes, or a pair with those of the sources first.")
    source: Any
    target: Any
    source, target = (x, x) if x is None or isinstance(x, Tensor) else x
    if source is None:
        # Without features, nodes are row numbers of the weights, so they need their numbers in the whole
        # graph.
        whole = torch.cat([graph.owned_sources, graph.part.halo_nodes.long()])
        target = graph.owned_nodes if target is None else target
    elif not source.is_floating_point():
        if source.shape != (graph.num_sources,):
            raise ArgumentError(
                f"x: expected numbers of the {graph.num_sources} owned sources, got {list(source.shape)}."
            )
        whole = torch.cat([source, graph.exchange.values(source.unsqueeze(1)).squeeze(1)])
    else:
        check_sources("x", source, graph)
        check_rows("x", target, graph)
        whole = torch.cat([source, graph.exchange.values(source)])
    with among_edges():
        out: Tensor = theirs(layer, (whole, target), graph.derived("ends", graph.ends), edge_type)
    return out


def _mix(name: str, theirs: Any, layer: Any = None, *args: Any, **kwargs: Any) -> None:
    """Raises an error for a layer that mixes rows; HeteroBatchNorm may normalise each row separately."""
    if not isinstance(layer, HeteroBatchNorm) or not layer.track_running_stats or layer.training:
        raise ArgumentError(
            f"x: {name} mixes rows and has no path over several processes, where each has a part of them. "
            "Use another layer, or one process with the whole graph; if these rows do not belong to the "
            "divided graph, call it inside 'with onehop.distributed.alone():'."
        )


def _aggregate(theirs: Any, module: Any, *args: Any, **kwargs: Any) -> None:
    """Raises an error for an aggregation module, unless a layer reduces the messages of edges with it."""
    if not reduces_edges():
        _refuse_readout(type(module).__name__)


def _refuse_readout(name: str) -> NoReturn:
    raise ArgumentError(
        f"x: {name} makes one row of the rows of all nodes, of which each process of a divided graph has a "
        "part. Add them up with onehop.distributed.sum_over_processes(x.sum(0)) and divide the loss that "
        "every rank computes from it by the number of processes; if these rows or edges do not belong to "
        "the divided graph, run it inside 'with onehop.distributed.alone():'."
    )


_theirs: dict[str, Callable[..., Tensor]] = {}


class _CodeRow(Row):
    """Replaces the code of a function that models may hold, as in ``self.pool = global_mean_pool``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The dotted name of the function."""
        return f"{self.owner.__module__}.{self.owner.__name__}"

    def install(self) -> None:
        """Sets the code ``ours``. TorchScript, which compiles source text, still finds ``theirs``."""
        self.owner.__code__ = self.ours
        self.owner.__wrapped__ = _theirs[self.owner.__name__]

    def restore(self) -> None:
        """Restores the code ``theirs``, unless other code has replaced ``ours`` since."""
        if self.owner.__code__ is self.ours:
            self.owner.__code__ = self.theirs
            del self.owner.__wrapped__


def _copy(function: Any) -> Callable[..., Tensor]:
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )


# The code of these functions becomes the code of PyG's functions, so it can use only the names in PyG's
# module.
def _global_add_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided import pooled

    return pooled("global_add_pool", x, batch, size)


def _global_mean_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided import pooled

    return pooled("global_mean_pool", x, batch, size)


def _global_max_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided import pooled

    return pooled("global_max_pool", x, batch, size)


def pooled(name: str, x: Any, batch: Any, size: Any) -> Tensor:
    """Runs PyG's function with this name.

    Raises:
        ArgumentError: The rows may be a part of a divided graph.
    """
    if may_be_divided():
        _refuse_readout(name)
    return _theirs[name](x, batch, size)
