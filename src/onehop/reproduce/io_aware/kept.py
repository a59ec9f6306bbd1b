"""Bytes an edge that layers keep for their gradients, counted by torch's hooks on saved tensors."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import onehop
from onehop.datasets import chung_lu
from onehop.reproduce.rows import Row

_NODES, _EDGES = 2_000, (100_000, 200_000)
_HEADS, _HEAD_WIDTH = 4, 64

Layer = Callable[[Tensor, Tensor], Tensor]


def _layers() -> dict[str, Callable[[], Any]]:
    from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv

    width = _HEADS * _HEAD_WIDTH
    return {
        "GATv2": lambda: GATv2Conv(16, _HEAD_WIDTH, heads=_HEADS, add_self_loops=False),
        "Graph Transformer": lambda: TransformerConv(16, _HEAD_WIDTH, heads=_HEADS),
        "GAT": lambda: GATConv(16, _HEAD_WIDTH, heads=_HEADS, add_self_loops=False),
        "GCN": lambda: GCNConv(16, width, add_self_loops=False),
        "max": lambda: SAGEConv(width, width, aggr="max"),
    }


def kept_bytes(layer: Layer, x: Tensor, edge_index: Tensor) -> int:
    """Bytes of all storages that a forward pass saves for its gradient.

    Args:
        layer: A layer of PyG.
        x: [N, F]; requires a gradient.
        edge_index: [2, E].
    """
    storages: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        # The tensor is kept as well, so that no other storage gets its address.
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x, edge_index)
    found = sum(tensor.untyped_storage().nbytes() for tensor in storages.values())
    del out
    return found


def bytes_an_edge(make: Callable[[], Any], context: Callable[[], Any]) -> float:
    """Growth of the saved bytes with the number of edges.

    Args:
        make: Makes the layer.
        context: Entered around the forward pass.
    """
    torch.manual_seed(0)
    layer = make()
    width = layer.in_channels if isinstance(layer.in_channels, int) else layer.in_channels[0]
    x = torch.randn(_NODES, width, device="cpu").requires_grad_()
    counts, sizes = [], []
    for edges in _EDGES:
        edge_index = chung_lu(_NODES, edges)
        with context():
            sizes.append(kept_bytes(layer, x, edge_index))
        counts.append(edge_index.size(1))
    return (sizes[1] - sizes[0]) / (counts[1] - counts[0])


def rows() -> list[Row]:
    """A row for each layer: ours, and PyG's in the note."""
    found = []
    for name, make in _layers().items():
        ours = bytes_an_edge(make, lambda: onehop.patch())
        theirs = bytes_an_edge(make, contextlib.nullcontext)
        found.append(
            Row(
                figure=f"bytes an edge kept for gradients, {name}, width {_HEADS * _HEAD_WIDTH}",
                ours=ours,
                unit="bytes",
                note=f"PyG keeps {theirs:,.0f}; the paper's kernels keep nothing of edges times width.",
            )
        )
    return found
