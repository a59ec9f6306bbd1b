"""Layers of PyG that mix all nodes in ways that have no path over several processes: an error names them."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.distributed.graph import LocalEdges
from onehop.distributed.live import divided, in_use, part_with
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, stand_in

_NN = "torch_geometric.nn"

# Given a divided graph's edges, these would compute with one part alone.
_WITH_EDGES = (
    ("GPSConv", "forward", "its attention is over all nodes"),
    ("SGFormer", "forward", "its attention is over all nodes"),
    ("DeepGraphInfomax", "forward", "it compares nodes with a summary of all nodes"),
    ("CorrectAndSmooth", "correct", "it scales by the errors of all nodes"),
    ("LPFormer", "forward", "its attention is over all nodes"),
    ("GraphUNet", "forward", "it chooses among all nodes"),
    ("TopKPooling", "forward", "it chooses among all nodes"),
    ("SAGPooling", "forward", "it chooses among all nodes"),
    ("ASAPooling", "forward", "it chooses among all nodes"),
    ("PANPooling", "forward", "it chooses among all nodes"),
    ("EdgePooling", "forward", "it chooses among all edges"),
    ("ClusterPooling", "forward", "it chooses among all edges"),
    ("ChebConv", "forward", "it needs the Laplacian of the whole graph"),
    ("DirGNNConv", "forward", "it needs the edges that leave a node too"),
    ("FeaStConv", "forward", "it adds self loops to the edges itself"),
)

# Attention over [B, M, F], of which a mask may leave out some.
_DENSE = ("PerformerAttention", "SGFormerAttention", "PolynormerAttention", "QFormer")


def rows() -> list[Row]:
    """The table's rows, for the classes that this PyG has."""
    nn, attention = importlib.import_module(_NN), importlib.import_module(f"{_NN}.attention")
    with_edges = [
        Row(kind, method, _without_parts(getattr(kind, method), reason), getattr(kind, method))
        for name, method, reason in _WITH_EDGES
        if (kind := getattr(nn, name, None)) is not None
    ]
    dense = [
        Row(kind, "forward", _whole_attention(kind.forward), kind.forward)
        for name in _DENSE
        if (kind := getattr(attention, name, None)) is not None
    ]
    ratio = nn.DiffGroupNorm.group_distance_ratio
    labels = nn.models.RECT_L.get_semantic_labels
    typed, pooling, heads = nn.HeteroBatchNorm, nn.MemPooling, torch.nn.MultiheadAttention
    return [
        *with_edges,
        *dense,
        # A static method: what the class holds is not what it gives.
        Row(
            nn.DiffGroupNorm,
            "group_distance_ratio",
            staticmethod(_whole_ratio(ratio)),
            vars(nn.DiffGroupNorm)["group_distance_ratio"],
        ),
        Row(nn.models.RECT_L, "get_semantic_labels", _whole_labels(labels), labels),
        Row(typed, "forward", _whole_types(typed.forward), typed.forward),
        Row(pooling, "forward", _whole_pooling(pooling.forward), pooling.forward),
        Row(heads, "forward", _whole_sequence(heads.forward), heads.forward),
    ]


def _without_parts(theirs: Callable[..., Any], reason: str) -> Callable[..., Any]:
    edges, refused = LocalEdges, _refused

    def forward(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        for value in (*args, *kwargs.values()):
            if type(value) is edges:
                raise refused(self, reason)
        return theirs(self, *args, **kwargs)

    return stand_in(theirs, forward)


def _refused(layer: Any, reason: str) -> ArgumentError:
    return ArgumentError(
        f"edge_index: {type(layer).__name__} cannot run on a DistributedGraph's edges: {reason}. Use another "
        "layer, or one process with the whole graph."
    )


def _whole_attention(theirs: Callable[..., Any]) -> Callable[..., Any]:
    used, ours = in_use, _refuse_dense

    def forward(self, x, *args, **kwargs):  # type: ignore[no-untyped-def]
        if used():
            ours(self, x, args[0] if args else kwargs.get("mask"))
        return theirs(self, x, *args, **kwargs)

    return stand_in(theirs, forward)


def _refuse_dense(layer: Any, x: Tensor, mask: Tensor | None) -> None:
    rows = x.numel() // max(x.size(-1), 1) if mask is None else int(mask.sum())
    _refuse_rows(layer, rows)


def _whole_pooling(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Pooling of [N, F] with a batch, or of [B, M, F] with a mask."""
    used, ours = in_use, _refuse_dense

    def forward(self, x, batch=None, mask=None, *args, **kwargs):  # type: ignore[no-untyped-def]
        if used():
            ours(self, x, mask)
        return theirs(self, x, batch, mask, *args, **kwargs)

    return stand_in(theirs, forward)


def _whole_types(theirs: Callable[..., Any]) -> Callable[..., Any]:
    used, ours = in_use, _refuse_rows

    def forward(self, x, type_vec):  # type: ignore[no-untyped-def]
        if used() and (self.training or not self.track_running_stats):
            ours(self, x.size(0))
        return theirs(self, x, type_vec)

    return stand_in(theirs, forward)


def _whole_ratio(theirs: Callable[..., Any]) -> Callable[..., Any]:
    used, ours = in_use, _refuse

    def group_distance_ratio(x, y, eps=1e-5):  # type: ignore[no-untyped-def]
        if used():
            ours("DiffGroupNorm.group_distance_ratio", x.size(0))
        return theirs(x, y, eps)

    return stand_in(theirs, group_distance_ratio)


def _whole_labels(theirs: Callable[..., Any]) -> Callable[..., Any]:
    used, ours = in_use, _refuse

    def get_semantic_labels(self, x, y, mask):  # type: ignore[no-untyped-def]
        if used():
            ours("RECT_L.get_semantic_labels", x.size(0))
        return theirs(self, x, y, mask)

    return stand_in(theirs, get_semantic_labels)


def _whole_sequence(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Attention over a sequence, which the nodes of a graph may be."""
    used, ours = in_use, _refuse_nodes

    def forward(self, query, *args, **kwargs):  # type: ignore[no-untyped-def]
        if used():
            ours(self, query)
        return theirs(self, query, *args, **kwargs)

    return stand_in(theirs, forward)


def _refuse_nodes(layer: Any, query: Tensor) -> None:
    rows = query.size(1 if query.dim() == 3 and layer.batch_first else 0)
    # Other sequences are left alone.
    if part_with(rows) is not None:
        _refuse(type(layer).__name__, rows)


def _refuse_rows(layer: Any, rows: int) -> None:
    _refuse(type(layer).__name__, rows)


def _refuse(name: str, rows: int) -> None:
    graph = divided(name, rows)
    if graph is not None:
        raise ArgumentError(
            f"x: {name} mixes the rows of all nodes and has no path over several processes; got the {rows} "
            f"nodes that rank {graph.rank} owns of a divided graph. Use another layer, or one process with "
            "the whole graph; if these rows belong to something else, call it inside "
            "'with onehop.distributed.alone():'."
        )
