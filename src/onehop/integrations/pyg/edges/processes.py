"""Graphs over several processes, met by patched layers: nothing of them is imported unless one is in use."""

import contextlib
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


def reducing_edges() -> contextlib.AbstractContextManager[None]:
    """Says inside the block that PyG's modules reduce messages of edges, and make no read-outs."""
    converted = sys.modules.get("onehop.distributed.converted")
    return contextlib.nullcontext() if converted is None else converted.among_edges()
