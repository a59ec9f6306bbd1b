"""Layer-by-layer inference with PyG's models on graphs on disk."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from onehop import extras
from onehop.graph.graph import StoredGraph
from onehop.ops.aggregate import REDUCTIONS
from onehop.streaming import layerwise
from onehop.streaming.layerwise import Layer

_DIVIDED = "GCNConv, SAGEConv and GraphConv are divided"


def infer(
    model: nn.Module, graph: StoredGraph, x: object, out: str | os.PathLike[str], *, memory: int | None = None
) -> Path:
    """Runs an unchanged PyG model on a graph on disk, layer by layer, from disk to disk.

    ``model(x, edge_index)`` is divided at its layers over edges (``GCNConv``, ``SAGEConv``, ``GraphConv``).
    The inputs of these layers are on disk. Linear layers, activations, normalisations of rows and skip
    connections between two such layers are computed for some rows at a time. Supported models are PyG's
    ``GCN`` and ``GraphSAGE``, and other modules that ``torch.fx`` can trace.

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
        from torch_geometric.nn import GCNConv, GraphConv, MessagePassing, SAGEConv
    if not isinstance(module, MessagePassing):
        return None
    if type(module) not in (GCNConv, SAGEConv, GraphConv):
        return f"{type(module).__name__} is not known here; {_DIVIDED}"
    if module.flow != "source_to_target" or module.node_dim not in (-2, 0):
        return "its messages flow from target to source, or its nodes are no rows"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_propagate_forward_hooks", "_message_forward_hooks")
    if module.decomposed_layers > 1 or any(getattr(module, name, None) for name in hooks):
        return "it has hooks, or is decomposed"
    if type(module) is GCNConv:
        return _gcn(module)
    reduce = {"add": "sum"}.get(str(module.aggr), str(module.aggr))
    if not isinstance(module.aggr, str) or reduce not in REDUCTIONS:
        return f"it aggregates by {module.aggr!r}, and here are {', '.join(REDUCTIONS)}"
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

    def after(rows: Tensor, _: Tensor | None) -> Tensor:
        return rows if module.bias is None else rows + module.bias

    return Layer(module.lin, normalise, "sum", after, False, None)


def _sage(module: Any, rows: Tensor, inputs: Tensor | None) -> Tensor:
    out: Tensor = module.lin_l(rows)
    if module.root_weight:
        out = out + module.lin_r(inputs)
    return F.normalize(out, p=2.0, dim=-1) if module.normalize else out


def _graph_conv(module: Any, rows: Tensor, inputs: Tensor | None) -> Tensor:
    out: Tensor = module.lin_rel(rows) + module.lin_root(inputs)
    return out
