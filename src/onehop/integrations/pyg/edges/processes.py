"""Graphs over several processes in patched layers; their modules are imported only when needed."""

from types import ModuleType
from typing import Any

from onehop.loading import DISTRIBUTED


def parts_for(edge_index: Any) -> ModuleType | None:
    """Return the module :mod:`.part` if these edges are one process's part of a graph; else None."""
    distributed = DISTRIBUTED.provided
    if distributed is None or type(edge_index) is not distributed.graph.LocalEdges:
        return None
    from onehop.integrations.pyg.edges import part

    return part
