"""The layers that programs are made of: how each is built, what it can be told, and what it takes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import BatchNorm1d, Linear, Module, ReLU, Sequential
from torch_geometric import nn as pyg

from tests.differential.made_layers import (
    TEXTS,
    Composed,
    Enclosing,
    Gated,
    GCNOfTheTutorial,
    Plain,
    Remembering,
    Unannotated,
    Updating,
    executed,
    executed_gcn,
    manufactured,
)
from tests.differential.plain_layers import GATHERS, SCATTERS, Indexing
from tests.differential.returning_layers import MESSAGES, RESULTS, Asking, Returning
from tests.differential.tensors import ATTRIBUTES, RELATIONS
from tests.differential.wrapped_layers import (
    OfDisplacedPoints,
    OfHyperedges,
    OfLayers,
    OfPoints,
    OfPositions,
    OfSigns,
    OfSurfaces,
    OfTypes,
    han,
    hetero,
    hgt,
)

Choices = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Kind:
    """A class of layers."""

    make: Callable[..., Module]  # makes one, from the columns that come in and go out, and the options
    # What each option may be; the first is what shrinking leads to.
    choices: Choices = field(default_factory=dict)
    # What it is called with beside features and edges: "weight", "attr", "type", "type and attr", "first"
    # (the features that came into the model), or "attention" (edge attributes, if ``edge_dim`` is given).
    takes: str = ""
    keeps_width: bool = False  # whether as many columns go out as come in
    pair: bool = False  # whether it takes a pair of features
    lazy: bool = False  # whether it takes -1 for the columns that come in

    @property
    def attention(self) -> bool:
        """Whether it gives out attention weights on request."""
        return self.make in (pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv)

    def width(self, inp: int, out: int, options: dict[str, Any]) -> int:
        """Columns that go out."""
        if self.keeps_width:
            return inp
        return out * options.get("heads", 1) if options.get("concat", True) else out


def _fixed(kind: Callable[..., Module], *more: Any, widths: int = 2, **fixed: Any) -> Callable[..., Module]:
    """Makes layers of a class from so many of the two widths, these arguments, and the options."""
    return lambda *given, **options: kind(*given[:widths], *more, **fixed, **options)


def _mlp(inp: int, out: int) -> Module:
    return Sequential(Linear(inp, 4), ReLU(), Linear(4, out))


def _gin(inp: int, out: int, deep: bool = False, norm: bool = False, **options: Any) -> Module:
    inside = _mlp(inp, out) if deep else Linear(inp, out)
    return pyg.GINConv(Sequential(inside, BatchNorm1d(out)) if norm else inside, **options)


def _pna(inp: int, out: int, **options: Any) -> Module:
    degrees = torch.tensor([1, 3, 2, 1])
    return pyg.PNAConv(inp, out, ["mean", "max", "std"], ["identity", "amplification"], degrees, **options)


def _rgat(inp: int, out: int, **options: Any) -> Module:
    layer = pyg.RGATConv(inp, out, RELATIONS, **options)
    torch.nn.init.constant_(layer.l2, 0.5)  # which PyG leaves as the memory was
    return layer


def _basic(kind: type) -> Callable[..., Module]:
    def make(inp: int, out: int, **options: Any) -> Module:
        return kind(inp, 4, num_layers=2, out_channels=out, **options)

    return make


_BOOL, _NOBOOL = (False, True), (True, False)
_AGGR: Choices = {"aggr": ("sum", "mean", "max", "min")}
_BIAS: Choices = {"bias": _NOBOOL}
_FLOW: Choices = {"flow": ("source_to_target", "source_to_target", "target_to_source")}
_DIM: Choices = {"node_dim": (-2, 0, 1, -1, -3)}
_NORMALISED: Choices = {"add_self_loops": _NOBOOL, "cached": (False, False, True), "normalize": _NOBOOL}
_HEADS: Choices = {"heads": (1, 2), "concat": _NOBOOL, "dropout": (0.0, 0.0, 0.5)}
_ATTENTION: Choices = {**_HEADS, **_BIAS, **_FLOW, "add_self_loops": _NOBOOL, "edge_dim": (None, ATTRIBUTES)}
_BASIC: Choices = {
    "dropout": (0.0, 0.0, 0.4),
    "norm": (None, None, "batch_norm", "layer_norm", "graph_norm"),
    "jk": (None, None, "cat", "max", "last"),
    "act": ("relu", "elu"),
}

KINDS: dict[str, Kind] = {
    "GCNConv": Kind(pyg.GCNConv, {"improved": _BOOL, **_NORMALISED, **_BIAS, **_FLOW}, "weight", lazy=True),
    "SAGEConv": Kind(
        pyg.SAGEConv,
        {
            "aggr": ("mean", "sum", "max", "min", "std", "median", ("mean", "max")),
            "root_weight": _NOBOOL,
            "project": _BOOL,
            "normalize": _BOOL,
            **_BIAS,
            **_FLOW,
        },
        pair=True,
        lazy=True,
    ),
    "SAGEConv lstm": Kind(_fixed(pyg.SAGEConv, aggr="lstm")),
    "GraphConv": Kind(
        pyg.GraphConv, {"aggr": ("add", "mean", "max"), **_BIAS, **_FLOW}, "weight", pair=True, lazy=True
    ),
    "GINConv": Kind(
        _gin, {"train_eps": _BOOL, "eps": (0.0, 0.5), "deep": _BOOL, "norm": _BOOL, **_AGGR}, pair=True
    ),
    "GINEConv": Kind(
        lambda inp, out, **options: pyg.GINEConv(Linear(inp, out), edge_dim=ATTRIBUTES, **options),
        {"train_eps": _BOOL, "aggr": ("add", "mean", "max"), **_FLOW},
        "attr",
        pair=True,
    ),
    "GATConv": Kind(pyg.GATConv, {**_ATTENTION, "residual": _BOOL}, "attention", pair=True, lazy=True),
    "GATv2Conv": Kind(
        pyg.GATv2Conv,
        {**_ATTENTION, "share_weights": _BOOL, "residual": _BOOL},
        "attention",
        pair=True,
        lazy=True,
    ),
    "TransformerConv": Kind(
        pyg.TransformerConv,
        {**_HEADS, **_BIAS, "edge_dim": (None, ATTRIBUTES), "beta": _BOOL, "root_weight": _NOBOOL},
        "attention",
        pair=True,
        lazy=True,
    ),
    "SGConv": Kind(
        pyg.SGConv,
        {"K": (1, 2, 3), "cached": (False, False, True), "add_self_loops": _NOBOOL, **_BIAS},
        "weight",
    ),
    "TAGConv": Kind(pyg.TAGConv, {"K": (1, 2, 3), "normalize": _NOBOOL, **_BIAS}, "weight"),
    "SSGConv": Kind(
        _fixed(pyg.SSGConv, alpha=0.3),
        {"K": (1, 2), "cached": (False, False, True), "add_self_loops": _NOBOOL},
        "weight",
    ),
    "APPNP": Kind(
        lambda inp, out, K=2, **options: pyg.APPNP(K, alpha=0.2, **options),
        {"K": (2, 1), "dropout": (0.0, 0.0, 0.5), **_NORMALISED},
        "weight",
        keeps_width=True,
    ),
    "LGConv": Kind(_fixed(pyg.LGConv, widths=0), {"normalize": _NOBOOL, **_FLOW}, "weight", keeps_width=True),
    "SimpleConv": Kind(
        _fixed(pyg.SimpleConv, widths=0),
        {"aggr": ("sum", "mean", "max"), "combine_root": (None, "sum", "self_loop"), **_FLOW, **_DIM},
        "weight",
        keeps_width=True,
        pair=True,
    ),
    "ChebConv": Kind(
        lambda inp, out, K=2, **options: pyg.ChebConv(inp, out, K, **options),
        {"K": (2, 1, 3), "normalization": ("sym", "rw"), **_BIAS},
        "weight",
    ),
    "ClusterGCNConv": Kind(pyg.ClusterGCNConv, {"diag_lambda": (0.0, 0.5)}),
    "ARMAConv": Kind(
        pyg.ARMAConv, {"num_stacks": (1, 2), "num_layers": (1, 2), "shared_weights": _BOOL}, "weight"
    ),
    "AGNNConv": Kind(
        _fixed(pyg.AGNNConv, widths=0),
        {"requires_grad": _NOBOOL, "add_self_loops": _NOBOOL},
        keeps_width=True,
    ),
    "FAConv": Kind(
        _fixed(pyg.FAConv, widths=1), {"dropout": (0.0, 0.0, 0.5), **_NORMALISED}, "first", keeps_width=True
    ),
    "GCN2Conv": Kind(
        _fixed(pyg.GCN2Conv, alpha=0.2, theta=0.5, layer=1, widths=1),
        {"shared_weights": _NOBOOL, **_NORMALISED},
        "first",
        keeps_width=True,
    ),
    "SuperGATConv": Kind(
        pyg.SuperGATConv,
        {"heads": (1, 2), "concat": _NOBOOL, "attention_type": ("MX", "SD"), "dropout": (0.0, 0.0, 0.5)},
    ),
    "PNAConv": Kind(_pna, {"towers": (1,), "edge_dim": (None, ATTRIBUTES)}, "attention"),
    "ResGatedGraphConv": Kind(
        pyg.ResGatedGraphConv,
        {"edge_dim": (None, ATTRIBUTES), "root_weight": _NOBOOL, "aggr": ("add", "mean"), **_BIAS, **_FLOW},
        "attention",
    ),
    "GENConv": Kind(
        pyg.GENConv,
        {"aggr": ("softmax", "powermean", "sum", "max"), "learn_t": _BOOL, "edge_dim": (None, ATTRIBUTES)},
        "attention",
    ),
    "EdgeConv": Kind(
        lambda inp, out, **options: pyg.EdgeConv(_mlp(2 * inp, out), **options),
        {"aggr": ("max", "sum", "mean")},
    ),
    "MFConv": Kind(pyg.MFConv, {"max_degree": (3, 10), **_BIAS}, pair=True),
    "LEConv": Kind(pyg.LEConv, {**_BIAS}, "weight"),
    "FeaStConv": Kind(pyg.FeaStConv, {"heads": (1, 2), "add_self_loops": _NOBOOL}),
    "RGCNConv": Kind(
        _fixed(pyg.RGCNConv, RELATIONS),
        {"num_bases": (None, 2), "aggr": ("mean", "sum", "max"), "root_weight": _NOBOOL},
        "type",
    ),
    "FastRGCNConv": Kind(
        _fixed(pyg.FastRGCNConv, RELATIONS),
        {"num_bases": (None, 2), "aggr": ("mean", "sum"), "root_weight": _NOBOOL},
        "type",
    ),
    "RGATConv": Kind(
        _rgat,
        {
            "num_bases": (None, 2),
            "mod": (None, "additive", "scaled", "f-additive", "f-scaled"),
            "aggr": ("sum", "mean", "max"),
            "attention_mechanism": ("across-relation", "within-relation"),
            "attention_mode": ("additive-self-attention", "multiplicative-self-attention"),
            "heads": (1, 2),
            "concat": _NOBOOL,
            **_FLOW,
        },
        "type",
    ),
    "RGATConv attr": Kind(
        _fixed(_rgat, edge_dim=ATTRIBUTES), {**_HEADS, **_BIAS, "num_blocks": (None, 1)}, "type and attr"
    ),
    "HypergraphConv": Kind(OfHyperedges, _BIAS),
    "HypergraphConv attention": Kind(
        _fixed(OfHyperedges, use_attention=True), {**_HEADS, **_BIAS, "attention_mode": ("node", "edge")}
    ),
    "HEATConv": Kind(OfTypes, {**_HEADS, **_BIAS, "root_weight": _NOBOOL, **_FLOW}, "type and attr"),
    "PointTransformerConv": Kind(OfPoints, {"add_self_loops": _NOBOOL, "aggr": ("sum", "max")}),
    "PointNetConv": Kind(OfPositions, {"add_self_loops": _NOBOOL, "aggr": ("max", "sum")}),
    "PPFConv": Kind(OfSurfaces, {"add_self_loops": _NOBOOL, "aggr": ("max", "mean")}),
    "PointGNNConv": Kind(_fixed(OfDisplacedPoints, widths=1), {"aggr": ("max", "sum")}, keeps_width=True),
    "SignedConv": Kind(OfSigns, {**_BIAS, **_FLOW}),
    "DNAConv": Kind(OfLayers, {"dropout": (0.0, 0.0, 0.5), "normalize": _NOBOOL, **_BIAS}, "weight alone"),
    "GMMConv": Kind(
        _fixed(pyg.GMMConv, ATTRIBUTES, 2),
        {"separate_gaussians": _BOOL, "root_weight": _NOBOOL, "aggr": ("mean", "sum", "max"), **_BIAS},
        "attr",
        pair=True,
    ),
    "NNConv": Kind(
        lambda inp, out, **options: pyg.NNConv(inp, out, Linear(ATTRIBUTES, inp * out), **options),
        {"root_weight": _NOBOOL, "aggr": ("add", "mean", "max"), **_BIAS, **_FLOW},
        "attr",
    ),
    "PDNConv": Kind(
        _fixed(pyg.PDNConv, ATTRIBUTES, 3), {"normalize": _NOBOOL, "add_self_loops": _NOBOOL, **_BIAS}, "attr"
    ),
    "WLConvContinuous": Kind(_fixed(pyg.WLConvContinuous, widths=0), _FLOW, "weight", keeps_width=True),
    "AntiSymmetricConv": Kind(
        _fixed(pyg.AntiSymmetricConv, widths=1), {"num_iters": (1, 2), **_BIAS}, keeps_width=True
    ),
    "DirGNNConv": Kind(
        lambda inp, out, **options: pyg.DirGNNConv(pyg.SAGEConv(inp, out), **options),
        {"alpha": (0.5, 0.0), "root_weight": _NOBOOL},
    ),
    "GPSConv": Kind(
        lambda inp, out, **options: pyg.GPSConv(inp, pyg.SAGEConv(inp, inp), **options),
        {"norm": ("layer_norm", None), "dropout": (0.0, 0.0, 0.5)},
        keeps_width=True,
    ),
    "HGTConv": Kind(hgt, {"heads": (1, 2)}, "type"),
    "HANConv": Kind(han, {"heads": (1, 2), "dropout": (0.0, 0.0, 0.5)}, "type"),
    "HeteroConv": Kind(hetero, {"aggr": ("sum", "mean", "max")}, "type"),
    "FiLMConv": Kind(pyg.FiLMConv, {"aggr": ("mean", "sum", "max"), **_FLOW}),
    "CGConv": Kind(
        _fixed(pyg.CGConv, ATTRIBUTES, widths=1),
        {**_AGGR, "batch_norm": _BOOL, **_BIAS, **_FLOW},
        "attr",
        keeps_width=True,
    ),
    "MixHopConv": Kind(_fixed(pyg.MixHopConv, powers=[1]), {**_BIAS}, "weight"),
    "GatedGraphConv": Kind(
        lambda inp, out, num_layers=1, **options: pyg.GatedGraphConv(inp, num_layers, **options),
        {"num_layers": (1, 2)},
        "weight",
        keeps_width=True,
    ),
    "GeneralConv": Kind(pyg.GeneralConv, {"attention": _BOOL, "aggr": ("sum", "max")}),
    "EGConv": Kind(
        _fixed(pyg.EGConv, 4, num_heads=2, num_bases=2, widths=1),
        {"aggregators": (("symnorm",), ("sum", "max"), ("mean", "std")), "cached": (False, True)},
    ),
    "GCN": Kind(_basic(pyg.GCN), _BASIC, "weight"),
    "GraphSAGE": Kind(_basic(pyg.GraphSAGE), {**_BASIC, "aggr": ("mean", "max")}),
    "GIN": Kind(_basic(pyg.GIN), _BASIC),
    "GAT": Kind(_basic(pyg.GAT), {**_BASIC, "v2": _BOOL, "heads": (1, 2)}),
    "Gated": Kind(Gated, {**_AGGR, **_FLOW, **_DIM}),
    "Composed": Kind(
        Composed, {**_AGGR, "style": ("heads", "edges", "pair", "in place", "quotient"), **_FLOW}, "attr"
    ),
    "Plain": Kind(Plain, {**_AGGR, **_FLOW, **_DIM}, keeps_width=True),
    # Not max and min: PyG needs what they gave for their gradient.
    "Updating": Kind(Updating, {"aggr": ("sum", "mean")}, keeps_width=True),
    "Remembering": Kind(Remembering, _AGGR, keeps_width=True),
    "GCNOfTheTutorial": Kind(GCNOfTheTutorial),
    "Unannotated": Kind(
        Unannotated,
        {**_AGGR, "style": ("attention", "pair", "edges"), **_FLOW},
        "attr",
        keeps_width=True,
        pair=True,
    ),
    "Executed": Kind(
        executed, {**_AGGR, "text": tuple(TEXTS), **_FLOW, **_DIM}, "weight", keeps_width=True, pair=True
    ),
    "Executed GCNConv": Kind(executed_gcn, {**_NORMALISED, **_BIAS}, "weight"),
    "Manufactured": Kind(
        manufactured,
        {**_AGGR, "power": (1, 2, 3), "style": ("closure", "default", "plain")},
        keeps_width=True,
    ),
    "Indexing": Kind(
        Indexing, {"gather": tuple(GATHERS), "scatter": tuple(SCATTERS), "into": ("zeros", "features")}
    ),
    "Returning": Kind(Returning, {"results": RESULTS, **_FLOW}, "attr"),
    "Asking": Kind(Asking, {"numbers": MESSAGES, **_AGGR, **_FLOW}),
    "Enclosing": Kind(Enclosing, {**_AGGR, **_FLOW}, keeps_width=True, pair=True),
}


def width_after(name: str, inp: int, out: int, options: dict[str, Any]) -> int:
    """Columns that a layer gives out."""
    if name == "EGConv":
        return 4
    if name in ("GCN", "GraphSAGE", "GIN", "GAT", "FeaStConv"):
        return out
    return KINDS[name].width(inp, out, options)


REORDERED = (
    "GCNConv", "SAGEConv", "GraphConv", "SGConv", "TAGConv", "LEConv", "GCN", "GraphSAGE", "Executed GCNConv",
)  # fmt: skip
"""Layers of which the patch multiplies, subtracts and adds in another order, and models of them."""
SOFTMAX = (
    "GATConv", "GATv2Conv", "TransformerConv", "SuperGATConv", "GeneralConv", "AGNNConv", "GENConv",
    "RGATConv", "HEATConv", "PointTransformerConv", "HGTConv", "HANConv", "GAT", "Unannotated", "Asking",
)  # fmt: skip
"""Layers with a softmax over the edges of each destination."""
