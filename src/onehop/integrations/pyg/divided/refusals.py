"""Layers of PyG that mix all nodes in ways that have no path over several processes: an error names them."""

import importlib
from collections.abc import Callable
from typing import Any

from torch import Tensor

from onehop.distributed.graph import LocalEdges
from onehop.distributed.live import divided, in_use
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
    ("FeaStConv", "forward", "its messages need the destinations' features too"),
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
    typed = nn.HeteroBatchNorm
    return [*with_edges, *dense, Row(typed, "forward", _whole_types(typed.forward), typed.forward)]


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


def _whole_types(theirs: Callable[..., Any]) -> Callable[..., Any]:
    used, ours = in_use, _refuse_rows

    def forward(self, x, type_vec):  # type: ignore[no-untyped-def]
        if used() and (self.training or not self.track_running_stats):
            ours(self, x.size(0))
        return theirs(self, x, type_vec)

    return stand_in(theirs, forward)


def _refuse_rows(layer: Any, rows: int) -> None:
    name = type(layer).__name__
    graph = divided(name, rows)
    if graph is not None:
        raise ArgumentError(
            f"x: {name} mixes the rows of all nodes and has no path over several processes; got the {rows} "
            f"nodes that rank {graph.rank} owns of a divided graph. Use another layer, or one process with "
            "the whole graph."
        )
