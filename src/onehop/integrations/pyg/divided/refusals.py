"""Layers of PyG that mix all nodes in ways that have no path over several processes: an error names them.

Those that compute with the edges themselves are not among them: a part's edges refuse that.
"""

import importlib
from typing import Any

from torch_geometric.nn import HeteroBatchNorm

from onehop.distributed.converted import may_be_divided
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, stand_in

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
    """The table's rows, for the classes that this PyG has."""
    found = []
    for module, name, method in _REFUSED:
        kind = getattr(importlib.import_module(module), name, None)
        if kind is not None:
            theirs = vars(kind)[method]
            whole = name if method == "forward" else f"{name}.{method}"
            found.append(Row(kind, method, _without_divided_rows(theirs, whole), theirs))
    return found


def _without_divided_rows(theirs: Any, name: str) -> Any:
    if isinstance(theirs, staticmethod):
        return staticmethod(_without_divided_rows(theirs.__func__, name))
    divided, by_row, refused = may_be_divided, _by_row, _refused

    def forward(*args, **kwargs):  # type: ignore[no-untyped-def]
        if divided() and not by_row(*args[:1]):
            raise refused(name)
        return theirs(*args, **kwargs)

    return stand_in(theirs, forward)


def _by_row(layer: Any = None) -> bool:
    """Return whether a layer, as it is set up, treats each row on its own."""
    return isinstance(layer, HeteroBatchNorm) and layer.track_running_stats and not layer.training


def _refused(name: str) -> ArgumentError:
    return ArgumentError(
        f"x: {name} mixes rows and has no path over several processes, where each has a part of them. Use "
        "another layer, or one process with the whole graph; if these rows do not belong to the divided "
        "graph, call it inside 'with onehop.distributed.alone():'."
    )
