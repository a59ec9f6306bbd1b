"""Layer-by-layer inference with PyG's models on graphs on disk."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onehop import extras
from onehop.graph.graph import StoredGraph
from onehop.ops.aggregate import REDUCTIONS
from onehop.streaming import layerwise
from onehop.streaming.attention import Attention
from onehop.streaming.layerwise import Layer

_DIVIDED = "GCNConv, SAGEConv, GraphConv, GATConv and GATv2Conv are divided"
# The functions of a layer to which hooks can be added, beside its forward.
_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks"),
    *(f"_{step}_forward_{kind}" for step in _STEPS for kind in ("hooks", "pre_hooks")),
)


def infer(
    model: nn.Module, graph: StoredGraph, x: object, out: str | os.PathLike[str], *, memory: int | None = None
) -> Path:
    """Runs an unchanged PyG model on a graph on disk, layer by layer, from disk to disk.

    ``model(x, edge_index)`` is divided at its layers over edges (``GCNConv``, ``SAGEConv``, ``GraphConv``,
    ``GATConv``, ``GATv2Conv``). The inputs of these layers are on disk. Linear layers, activations,
    normalisations of rows and skip connections between two such layers are computed for some rows at a time.
    Supported models are PyG's ``GCN``, ``GraphSAGE`` and ``GAT``, and other modules that ``torch.fx`` can
    trace.

    After an interruption, a call with the same model and files continues with the interrupted step.
    Intermediate results are in ``out.layers``, next to the result.

    Args:
        model: The model, in evaluation mode, with parameters of the dtype of ``x`` (float32 if ``x`` has 16
            bits).
        graph: A graph that ``Graph.open`` opened, with as many sources as destinations.
        x: [N, F], the features, as :func:`onehop.aggregate` takes them with ``out``.
        out: The .npy file of the result, [N, .].
        memory: As for :func:`onehop.aggregate`.

    Returns:
        ``out``.

    Raises:
        ArgumentError: The model cannot be divided, or an argument does not fit.
        ConfigurationError: PyG is not installed.
        FileFormatError: A file is truncated or holds something else.
        StorageError: The result cannot be written, or another run is writing it.

    Examples:
        >>> import numpy, onehop, tempfile, torch
        >>> from torch_geometric.nn import GraphSAGE
        >>> model, x = GraphSAGE(2, 4, num_layers=2).eval(), torch.ones(3, 2)
        >>> edge_index = torch.tensor([[0, 0, 1], [1, 2, 2]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graph = onehop.Graph.from_edge_index(edge_index).save(f"{folder}/graph")
        ...     numpy.save(f"{folder}/x.npy", x)
        ...     out = numpy.load(onehop.infer(model, graph, f"{folder}/x.npy", f"{folder}/out.npy"))
        >>> torch.allclose(torch.from_numpy(out), model(x, edge_index), atol=1e-5)
        True
    """
    return layerwise.infer(model, graph, x, out, memory, divide)


def divide(module: nn.Module) -> Layer | str | None:
    """Return how to divide a layer, or why it cannot be divided; None if it is not a layer over edges."""
    with extras.needed("onehop.infer", "pyg"):
        from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GraphConv, MessagePassing, SAGEConv
    if not isinstance(module, MessagePassing):
        return None
    if type(module) not in (GCNConv, SAGEConv, GraphConv, GATConv, GATv2Conv):
        return f"{type(module).__name__} is not known here; {_DIVIDED}"
    if module.flow != "source_to_target" or module.node_dim not in (-2, 0):
        return "its messages flow from target to source, or its nodes are no rows"
    if module.decomposed_layers > 1 or any(getattr(module, name, None) for name in _HOOKS):
        return "it has hooks, or is decomposed"
    if type(module) is GCNConv:
        return _gcn(module)
    reduce = {"add": "sum"}.get(str(module.aggr), str(module.aggr))
    if not isinstance(module.aggr, str) or reduce not in REDUCTIONS:
        return f"it aggregates by {module.aggr!r}, and here are {', '.join(REDUCTIONS)}"
    if type(module) is GATConv:
        return _attending(module, partial(_gat_rows, module), reduce, _gat(module))
    if type(module) is GATv2Conv:
        return _attending(module, partial(_gatv2_rows, module), reduce, _gatv2(module))
    if type(module) is GraphConv:
        return Layer(None, "none", reduce, partial(_graph_conv, module), True, None)
    if module.project:
        return "it projects its input, which is not divided yet"
    after = partial(_sage, module)
    return Layer(None, "none", reduce, after, module.root_weight, module.normalize)


def _gcn(module: Any) -> Layer | str:
    if module.improved or module.aggr != "add":
        return "its normalisation is the improved one, or it does not sum"
    normalise = "none" if not module.normalize else "gcn" if module.add_self_loops else "symmetric"

    def after(heads: Sequence[Tensor], _: Tensor | None) -> Tensor:
        (rows,) = heads
        return rows if module.bias is None else rows + module.bias

    return Layer(module.lin, normalise, "sum", after, False, None)


def _sage(module: Any, heads: Sequence[Tensor], inputs: Tensor | None) -> Tensor:
    (rows,) = heads
    out: Tensor = module.lin_l(rows)
    if module.root_weight:
        out = out + module.lin_r(inputs)
    return F.normalize(out, p=2.0, dim=-1) if module.normalize else out


def _graph_conv(module: Any, heads: Sequence[Tensor], inputs: Tensor | None) -> Tensor:
    (rows,) = heads
    out: Tensor = module.lin_rel(rows) + module.lin_root(inputs)
    return out


def _attending(module: Any, before: Callable[[Tensor], Tensor], reduce: str, attention: Attention) -> Layer:
    """Return the division of a layer with attention; ``before`` returns the columns that it names."""
    normalise = "loops" if module.add_self_loops else "none"
    residual = getattr(module, "res", None)  # PyG has it from 2.6 on

    def after(heads: Sequence[Tensor], inputs: Tensor | None) -> Tensor:
        out = torch.cat(list(heads), -1) if module.concat else sum(heads[1:], heads[0]) / len(heads)
        out = out if residual is None else out + residual(inputs)
        return out if module.bias is None else out + module.bias

    what = [type(module).__name__, module.concat, attention.negative_slope]
    return Layer(before, normalise, reduce, after, residual is not None, what, attention)


def _gat(module: Any) -> Attention:
    heads, channels = module.heads, module.out_channels
    ones = torch.ones(heads, 1, dtype=module.att_src.dtype, device="cpu")
    first = heads * channels
    return Attention(heads, channels, first, first + heads, ones, module.negative_slope)


def _gat_rows(module: Any, inputs: Tensor) -> Tensor:
    """Return [rows, heads * (channels + 2)]: what is aggregated, and a number for each end of an edge."""
    ways = (module.lin,) if module.lin is not None else (module.lin_src, module.lin_dst)
    shape = (len(inputs), module.heads, module.out_channels)
    ends = [way(inputs).view(shape) for way in ways]
    sources, destinations = (
        (end * factors).sum(-1) for end, factors in ((ends[0], module.att_src), (ends[-1], module.att_dst))
    )
    return torch.cat([ends[0].flatten(1), sources, destinations], -1)


def _gatv2(module: Any) -> Attention:
    heads, channels = module.heads, module.out_channels
    destinations = 0 if module.share_weights else heads * channels
    return Attention(heads, channels, 0, destinations, module.att[0], module.negative_slope)


def _gatv2_rows(module: Any, inputs: Tensor) -> Tensor:
    """Return [rows, 2 * heads * channels]: what is aggregated, and the destinations' parts of the scores.

    [rows, heads * channels] if both ends share their weights.
    """
    rows: Tensor = module.lin_l(inputs)
    return rows if module.share_weights else torch.cat([rows, module.lin_r(inputs)], -1)
