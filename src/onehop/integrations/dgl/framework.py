"""DGL as a framework that can be patched."""

from functools import partial
from importlib import import_module
from typing import Any

import dgl
import dgl.nn.pytorch.conv as convs
import torch

from onehop.errors import ConfigurationError
from onehop.integrations.dgl import attention, graphs, operators
from onehop.integrations.dgl.operands import forward, is_on, operator
from onehop.integrations.rows import Row, replacing, replacing_in
from onehop.integrations.session import DGL, Framework, Settings

# Layers whose aggregation takes the fast path if their options allow it.
LAYERS = ("DotGatConv", "GATConv", "GATv2Conv", "GINConv", "GraphConv", "SAGEConv")


class Dgl(Framework):
    """The Deep Graph Library. The patch replaces the few operators on edges that its layers call."""

    name = DGL

    def __init__(self) -> None:
        super().__init__()
        if dgl.backend.backend_name != "pytorch":
            raise ConfigurationError(
                f"dgl runs on {dgl.backend.backend_name}, and onehop.patch() needs its backend for PyTorch: "
                f"set DGLBACKEND=pytorch before dgl is imported."
            )

    def layers(self) -> tuple[str, ...]:
        """The class names that ``patch(only=...)`` takes."""
        return LAYERS

    def rows(self, settings: Settings) -> list[Row]:
        """Return the rows of the patch table; no setting changes them."""
        # The function edge_softmax hides the module of the same name, so the modules are imported by full
        # name.
        modules = (import_module(f"dgl.ops.{name}") for name in ("spmm", "sddmm", "edge_softmax"))
        spmm, sddmm, softmax = modules
        index = import_module("dgl.heterograph_index").HeteroGraphIndex
        gspmm, gsddmm, over_edges = (
            partial(operator, body)
            for body in (operators.gspmm, operators.gsddmm, operators.edge_softmax_internal)
        )
        return [
            *replacing_in((spmm, dgl.ops), "gspmm", gspmm, where=is_on),
            *replacing_in((sddmm, dgl.ops), "gsddmm", gsddmm, where=is_on),
            replacing(softmax, "edge_softmax_internal", over_edges, where=is_on),
            replacing(index, "get_relation_graph", graphs.get_relation_graph, where=is_on),
            *(
                replacing(kind, "forward", partial(forward, attention.FUSED.get(kind.__name__)), where=is_on)
                for kind in _layer_classes()
                if "forward" in vars(kind)
            ),
        ]

    def silence(self, module: Any) -> str | None:
        """Return why a layer never called a replaced operator; None if the module is not a layer of DGL."""
        if not isinstance(module, tuple(_layer_classes())):
            return None
        return "it called none of DGL's operators that onehop has"


def _layer_classes() -> list[Any]:
    return [
        kind
        for kind in vars(convs).values()
        if isinstance(kind, type)
        and issubclass(kind, torch.nn.Module)
        and kind.__module__.startswith(f"{convs.__name__}.")
    ]
