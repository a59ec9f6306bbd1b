"""Names of PyG's classes and functions that the patch replaces or treats specially."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from onehop.calls import Rule
from onehop.integrations.rows import is_own

# Layers of PyG whose messages treat each edge separately, so they can run compiled or in blocks.
OWN_MESSAGES = (
    "CGConv",
    "DNAConv",
    "DynamicEdgeConv",
    "EdgeConv",
    "FeaStConv",
    "FiLMConv",
    "GENConv",
    "GINEConv",
    "GMMConv",
    "GeneralConv",
    "GravNetConv",
    "HypergraphConv",
    "NNConv",
    "PNAConv",
    "PPFConv",
    "PointNetConv",
    "FastRGCNConv",
    "RGCNConv",
    "ResGatedGraphConv",
)

# Layers of PyG whose messages reduce over destinations, so they run compiled or in PyG.
COMPILED = ("HANConv", "PointTransformerConv")


@functools.cache
def messages_with_softmax() -> frozenset[Callable[..., Any]]:
    """Return PyG's message functions that use ``ptr`` only to compute a softmax, if at all."""
    functions = (layer_class(name).message for name in (*OWN_MESSAGES, *COMPILED))
    return frozenset(filter(is_own, functions))


_CONV = "torch_geometric.nn.conv"
_MODELS = "torch_geometric.nn.models"

# Every module of PyG that holds a name bound to gcn_norm.
GCN_NORM_MODULES = (
    *(
        f"{_CONV}.{name}"
        for name in (
            *("gcn_conv", "appnp", "arma_conv", "dna_conv", "eg_conv", "fa_conv", "gcn2_conv", "lg_conv"),
            *("mixhop_conv", "pdn_conv", "sg_conv", "ssg_conv", "tag_conv"),
        )
    ),
    f"{_MODELS}.label_prop",
)

# Modules whose layers rewrite self loops on every call, and the names of the functions that do it.
SELF_LOOP_NAMES = (
    (f"{_CONV}.cluster_gcn_conv", "remove_self_loops"),
    (f"{_CONV}.cluster_gcn_conv", "add_self_loops"),
    (f"{_CONV}.simple_conv", "add_self_loops"),
    *(
        (f"{_CONV}.{module}", name)
        for module in ("gat_conv", "gatv2_conv", "agnn_conv", "supergat_conv")
        for name in ("remove_self_loops", "add_self_loops")
    ),
)

# The kind of score of each attention layer, and the layers that compute weights in edge_update, before
# propagate.
ATTENTION: dict[str, Rule] = {"GATConv": "gat", "GATv2Conv": "gatv2", "TransformerConv": "dot"}
_EDGE_UPDATES = ("GATConv", "GATv2Conv")


@functools.cache
def edge_updates() -> dict[Callable[..., Any], str]:
    """Return the functions that compute attention weights before ``propagate``, with the kind of each."""
    functions = ((layer_class(name).edge_update, ATTENTION[name]) for name in _EDGE_UPDATES)
    return {function: kind for function, kind in functions if is_own(function)}


def classes_returning_weights() -> list[Any]:
    """Return the classes whose ``forward`` returns attention weights on request, and always computes them."""
    return [layer_class(name) for name in ATTENTION]


def layer_class(name: str) -> Any:
    """Return PyG's class with this name."""
    module = "torch_geometric.nn.models.linkx" if name == "SparseLinear" else "torch_geometric.nn"
    return getattr(importlib.import_module(module), name)
