"""The message functions that onehop knows, and what each computes.

The table is keyed by the function object that a layer's class has as ``message``: a class that inherits one
of these functions qualifies, a class that overrides it does not.
"""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Form:
    """The message of an edge from j to i.

    Attributes:
        name: As ``explain`` shows it.
        source: The operand of ``propagate`` with the sources' features.
        weight: The operand with one number an edge; None if the message has none.
        weight_required: Whether a weight of None is an error in PyG.
        subtract: The operand with the destinations' features that the message subtracts from the sources'.
    """

    name: str
    source: str = "x"
    weight: str | None = None
    weight_required: bool = False
    subtract: str | None = None

    @property
    def first(self) -> str:
        """The operand with the sources' features."""
        return self.source

    @property
    def names(self) -> frozenset[str]:
        """The operands of ``propagate``."""
        return frozenset(name for name in (self.source, self.weight, self.subtract) if name is not None)


COPY = Form("source")
MAYBE_WEIGHTED = Form("source * weight", weight="edge_weight")
WEIGHTED = Form("source * weight", weight="edge_weight", weight_required=True)
OVER_MATRIX = Form("source * weight", weight="values")
CHEBYSHEV = Form("source * weight", weight="norm", weight_required=True)
SPARSE_LINEAR = Form("source * weight", source="weight", weight="edge_weight")
DIFFERENCE = Form("(source - destination) * weight", source="a", weight="edge_weight", subtract="b")


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """Attention that a message function computes, or ends; or another recipe of a layer's own.

    Attributes:
        kind: Which; a recipe of ``attention.py`` has the same name.
        operands: What ``propagate`` gets.
        needs: Functions of its own that a subclass must not have replaced, beside those that no class may.
        compiles: Whether the message can be compiled where the recipe does not take it.
    """

    kind: str
    operands: tuple[str, ...]
    needs: tuple[str, ...] = ()
    compiles: bool = False

    @property
    def first(self) -> str:
        """An operand with features of the sources, of the width that is aggregated."""
        return next(name for name in ("key", "k", "x") if name in self.operands)

    @property
    def names(self) -> frozenset[str]:
        """The operands of ``propagate``."""
        return frozenset(self.operands)


WEIGHTS_OF_HEADS = AttentionForm("weights", ("x", "alpha"))
TRANSFORMER = AttentionForm("transformer", ("query", "key", "value", "edge_attr"))
AGNN = AttentionForm("agnn", ("x", "x_norm"))
FA = AttentionForm("fa", ("x", "alpha", "edge_weight"))
SUPERGAT = AttentionForm("supergat", ("x",), needs=("get_attention",))
HGT = AttentionForm("hgt", ("k", "q", "v", "edge_attr"))
EG = AttentionForm("eg", ("x", "symnorm_weight"), needs=("aggregate",))
RGAT = AttentionForm("rgat", ("x", "edge_type", "edge_attr"), needs=("update",))
HEAT = AttentionForm("heat", ("x", "edge_type_emb", "edge_attr"), compiles=True)

_CONV = "torch_geometric.nn.conv"
_MODELS = "torch_geometric.nn.models"

# (module, class that defines the message function, what it computes)
_TABLE: tuple[tuple[str, str, Form | AttentionForm], ...] = (
    (f"{_CONV}.message_passing", "MessagePassing", COPY),
    (f"{_CONV}.sage_conv", "SAGEConv", COPY),
    (f"{_CONV}.gin_conv", "GINConv", COPY),
    (f"{_CONV}.mf_conv", "MFConv", COPY),
    (f"{_CONV}.signed_conv", "SignedConv", COPY),
    (f"{_CONV}.gcn_conv", "GCNConv", MAYBE_WEIGHTED),
    (f"{_CONV}.graph_conv", "GraphConv", MAYBE_WEIGHTED),
    (f"{_CONV}.simple_conv", "SimpleConv", MAYBE_WEIGHTED),
    (f"{_CONV}.appnp", "APPNP", MAYBE_WEIGHTED),
    (f"{_CONV}.tag_conv", "TAGConv", MAYBE_WEIGHTED),
    (f"{_CONV}.lg_conv", "LGConv", MAYBE_WEIGHTED),
    (f"{_CONV}.gcn2_conv", "GCN2Conv", MAYBE_WEIGHTED),
    (f"{_CONV}.mixhop_conv", "MixHopConv", MAYBE_WEIGHTED),
    (f"{_CONV}.gated_graph_conv", "GatedGraphConv", MAYBE_WEIGHTED),
    (f"{_CONV}.wl_conv_continuous", "WLConvContinuous", MAYBE_WEIGHTED),
    (f"{_MODELS}.label_prop", "LabelPropagation", MAYBE_WEIGHTED),
    (f"{_CONV}.sg_conv", "SGConv", WEIGHTED),
    (f"{_CONV}.ssg_conv", "SSGConv", WEIGHTED),
    (f"{_CONV}.arma_conv", "ARMAConv", WEIGHTED),
    (f"{_CONV}.pdn_conv", "PDNConv", WEIGHTED),
    (f"{_CONV}.cluster_gcn_conv", "ClusterGCNConv", WEIGHTED),
    (f"{_CONV}.pan_conv", "PANConv", WEIGHTED),
    (f"{_CONV}.cheb_conv", "ChebConv", CHEBYSHEV),
    (f"{_MODELS}.linkx", "SparseLinear", SPARSE_LINEAR),
    (f"{_CONV}.le_conv", "LEConv", DIFFERENCE),
    (f"{_CONV}.gat_conv", "GATConv", WEIGHTS_OF_HEADS),
    (f"{_CONV}.gatv2_conv", "GATv2Conv", WEIGHTS_OF_HEADS),
    (f"{_CONV}.transformer_conv", "TransformerConv", TRANSFORMER),
    (f"{_CONV}.agnn_conv", "AGNNConv", AGNN),
    (f"{_CONV}.fa_conv", "FAConv", FA),
    (f"{_CONV}.supergat_conv", "SuperGATConv", SUPERGAT),
    (f"{_CONV}.hgt_conv", "HGTConv", HGT),
    (f"{_CONV}.eg_conv", "EGConv", EG),
    (f"{_CONV}.rgat_conv", "RGATConv", RGAT),
    (f"{_CONV}.heat_conv", "HEATConv", HEAT),
)

# Layers of PyG whose messages treat each edge on its own, and so run in blocks.
IN_BLOCKS = (
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

# Layers of PyG whose messages reduce over destinations, and so run compiled or not at all.
_COMPILED = ("HANConv", "PointTransformerConv")

# Every module of PyG that holds a name bound to gcn_norm.
GCN_NORM_MODULES = (
    f"{_CONV}.gcn_conv",
    f"{_CONV}.appnp",
    f"{_CONV}.arma_conv",
    f"{_CONV}.dna_conv",
    f"{_CONV}.eg_conv",
    f"{_CONV}.fa_conv",
    f"{_CONV}.gcn2_conv",
    f"{_CONV}.lg_conv",
    f"{_CONV}.mixhop_conv",
    f"{_CONV}.pdn_conv",
    f"{_CONV}.sg_conv",
    f"{_CONV}.ssg_conv",
    f"{_CONV}.tag_conv",
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

# Layers whose forward returns attention weights on demand, and computes them all the same without.
_RETURNING_WEIGHTS = (
    (f"{_CONV}.gat_conv", "GATConv"),
    (f"{_CONV}.gatv2_conv", "GATv2Conv"),
    (f"{_CONV}.transformer_conv", "TransformerConv"),
)

# Layers that compute weights before propagate, in edge_update, and how.
_EDGE_UPDATES = (
    (f"{_CONV}.gat_conv", "GATConv", "gat"),
    (f"{_CONV}.gatv2_conv", "GATv2Conv", "gatv2"),
)


def known_layers() -> tuple[str, ...]:
    """The names of the classes that have a fast path: by their message functions, compiled, or in blocks."""
    return tuple(name for _, name, _ in _TABLE) + IN_BLOCKS + _COMPILED


@functools.cache
def message_forms() -> dict[Callable[..., Any], Form | AttentionForm]:
    """The table, by function object."""
    return {_class(module, name).message: form for module, name, form in _TABLE}


@functools.cache
def block_messages() -> frozenset[Callable[..., Any]]:
    """The message functions of PyG that run in blocks."""
    layers = importlib.import_module("torch_geometric.nn")
    return frozenset(getattr(layers, name).message for name in IN_BLOCKS)


@functools.cache
def messages_with_softmax() -> frozenset[Callable[..., Any]]:
    """The message functions of PyG that do no more with ``ptr`` than to hand it to a softmax, if they ask."""
    layers = importlib.import_module("torch_geometric.nn")
    return block_messages() | {getattr(layers, name).message for name in _COMPILED}


@functools.cache
def fused_functions() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The products with a sparse matrix that stand for messages in PyG, by the message function."""
    kinds = [_class(module, name) for module, name, form in _TABLE if isinstance(form, Form)]
    return {
        kind.message: kind.message_and_aggregate for kind in kinds if "message_and_aggregate" in vars(kind)
    }


@functools.cache
def edge_updates() -> dict[Callable[..., Any], str]:
    """The functions that compute attention weights before ``propagate``, and the kind of each."""
    return {_class(module, name).edge_update: kind for module, name, kind in _EDGE_UPDATES}


def classes_returning_weights() -> list[Any]:
    """The classes whose ``forward`` returns attention weights to whoever asks for them."""
    return [_class(module, name) for module, name in _RETURNING_WEIGHTS]


def _class(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)
