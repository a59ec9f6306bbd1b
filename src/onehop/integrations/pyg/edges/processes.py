"""Graphs over several processes in patched layers; their modules are imported only where one is in use."""

import sys
from types import ModuleType
from typing import Any


def parts_for(edge_index: Any) -> ModuleType | None:
    """The module :mod:`.part`, if these edges are one process's part of a graph; else None."""
    graphs = sys.modules.get("onehop.distributed.graph")
    if graphs is None or type(edge_index) is not graphs.LocalEdges:
        return None
    from onehop.integrations.pyg.edges import part

    return part
