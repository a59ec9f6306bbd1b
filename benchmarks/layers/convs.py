"""Every layer of ``torch_geometric.nn.conv``: how it is made to be measured, and what it is called with.

Further cases have a hyphen in their names: other options of a layer, and layers over many relations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch_geometric import nn

WIDTH, HEADS, ATTRIBUTES, RELATIONS = 64, 4, 16, 5
# Layers that make a matrix for every edge, of which PyG's own would take several GB at the full width.
NARROW, NARROWER = 32, 16
_STEPS = 3
# Of the cases with many relations: relations, and types of nodes, among which the nodes are divided.
MANY, NODE_TYPES = 50, 10

NOT_MEASURED = {
    "MessagePassing": "the base class",
    "CuGraphSAGEConv": "needs pylibcugraphops and a GPU",
    "CuGraphGATConv": "needs pylibcugraphops and a GPU",
    "CuGraphRGCNConv": "needs pylibcugraphops and a GPU",
    "FusedGATConv": "needs dgNN and a GPU",
    "GravNetConv": "needs pyg-lib, or torch_cluster before PyG 2.8",
    "DynamicEdgeConv": "needs pyg-lib, or torch_cluster before PyG 2.8",
    "XConv": "needs pyg-lib, or torch_cluster before PyG 2.8",
    "SplineConv": "needs pyg-lib, or torch_spline_conv before PyG 2.8",
    "PANConv": "needs torch_sparse",
    "WLConv": "has no gradient, and counts colours in Python",
}
"""Layers without a measurement, and why."""


@dataclass(frozen=True, eq=False)
class Given:
    """What layers are called with.

    Attributes:
        x: [N, F], with a gradient.
        edges: [2, E].
        attr: [E, 16], features of edges.
        types: [E], of 5 types.
        points: [N, 3].
    """

    x: Tensor
    edges: Tensor
    attr: Tensor
    types: Tensor
    points: Tensor

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.x.size(0)

    @property
    def nodes_a_type(self) -> int:
        """Nodes of each type where there are many relations."""
        return self.num_nodes // NODE_TYPES

    @cached_property
    def many_types(self) -> Tensor:
        """[E], of fifty types."""
        return torch.arange(self.edges.size(1)) % MANY

    @property
    def numbers(self) -> Tensor:
        """[E, 2], between 0 and 1."""
        return self.attr[:, :2].sigmoid()

    @property
    def relations(self) -> tuple[list[str], list[tuple[str, str, str]]]:
        """Metadata of one type of nodes and five of edges."""
        return ["node"], [("node", f"type {i}", "node") for i in range(RELATIONS)]

    @property
    def many_relations(self) -> tuple[list[str], list[tuple[str, str, str]]]:
        """Metadata of ten types of nodes and fifty of edges, which reach every type of destinations."""
        types = [f"type{i}" for i in range(NODE_TYPES)]
        ends = [(types[i % 10], types[(3 * i + i // 10) % 10]) for i in range(MANY)]
        return types, [(source, f"relation{i}", target) for i, (source, target) in enumerate(ends)]

    @cached_property
    def by_relation(self) -> dict[tuple[str, str, str], Tensor]:
        """The edges of each of the many relations: as many of each, in the order of the edges."""
        parts = (self.edges % self.nodes_a_type).tensor_split(MANY, dim=1)
        return dict(zip(self.many_relations[1], (part.contiguous() for part in parts), strict=True))

    def by_type(self) -> dict[tuple[str, str, str], Tensor]:
        """The edges of each type."""
        kinds = self.relations[1]
        return {kind: self.edges[:, self.types == i].contiguous() for i, kind in enumerate(kinds)}


class Conv(NamedTuple):
    """A layer to be measured: what makes it, for columns of a width, and what calls it."""

    make: Callable[[int, Given], Module]
    call: Callable[[Any, Given], Any]
    width: int = WIDTH


def given(num_nodes: int, edges: Tensor, width: int) -> Given:
    """Operands over these edges, the same in every process."""
    torch.manual_seed(0)
    count = edges.size(1)
    return Given(
        torch.randn(num_nodes, width, requires_grad=True),
        edges,
        torch.randn(count, ATTRIBUTES),
        torch.randint(RELATIONS, (count,)),
        torch.randn(num_nodes, 3),
    )


def _mlp(before: int, after: int) -> Module:
    return Sequential(Linear(before, after), ReLU(), Linear(after, after))


def _on(*operands: str) -> Callable[..., Conv]:
    """A function of what makes a layer: the layer is called with these attributes of :class:`Given`."""

    def conv(make: Callable[[int], Module], width: int = WIDTH) -> Conv:
        return Conv(
            lambda columns, _: make(columns),
            lambda layer, on: layer(*(getattr(on, name) for name in operands)),
            width,
        )

    return conv


_plain, _with_first = _on("x", "edges"), _on("x", "x", "edges")
_with_attr, _typed = _on("x", "edges", "attr"), _on("x", "edges", "types")
_of_points = _on("x", "points", "edges")


def _of_dictionaries(make: Callable[[int, Given], Module]) -> Conv:
    return Conv(make, lambda layer, on: layer({"node": on.x}, on.by_type())["node"])


def _pna(width: int) -> Module:
    aggregators, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
    return nn.PNAConv(width, width, aggregators, scalers, torch.ones(30, dtype=torch.int64))


def _rgat(width: int) -> Module:
    layer = nn.RGATConv(width, width // HEADS, RELATIONS, heads=HEADS)
    torch.nn.init.constant_(layer.l2, 0.5)  # which PyG leaves as the memory was
    return layer


def _between(kind: str, width: int) -> Module:
    """A layer of one relation between different types of nodes."""
    if kind == "SAGE":
        return nn.SAGEConv(width, width)
    return nn.GATConv((width, width), width // HEADS, heads=HEADS, add_self_loops=False)


class _Model(Module):
    """A model of one layer, for ``to_hetero``."""

    def __init__(self, layer: Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.layer(x, edges)  # type: ignore[no-any-return]


def _of_relations(kind: str, whole_model: bool) -> Conv:
    """A layer for each of many relations, by HeteroConv or ``to_hetero``."""

    def make(width: int, on: Given) -> Module:
        if whole_model:
            return nn.to_hetero(_Model(_between(kind, width)), on.many_relations)
        return nn.HeteroConv({relation: _between(kind, width) for relation in on.many_relations[1]})

    def call(layer: Any, on: Given) -> Tensor:
        nodes, types = on.nodes_a_type, on.many_relations[0]
        x = dict(zip(types, on.x[: nodes * NODE_TYPES].split(nodes), strict=True))
        return torch.cat([out for out in layer(x, on.by_relation).values() if out is not None])

    return Conv(make, call)


def _signed(layer: Any, on: Given) -> Tensor:
    half = on.edges.size(1) // 2
    return layer(on.x, on.edges[:, :half], on.edges[:, half:])  # type: ignore[no-any-return]


def _mesh(layer: Any, on: Given) -> Tensor:
    """MeshCNNConv's rows are those of a mesh's edges, each of which has four neighbours."""
    rows = torch.arange(on.num_nodes)
    turned = [(rows + step).remainder(on.num_nodes) for step in (1, 2, 3, 4)]
    edges = torch.stack([torch.stack(turned, 1).flatten(), rows.repeat_interleave(4)])
    return layer(on.x, edges)  # type: ignore[no-any-return]


CONVS: dict[str, Conv] = {
    "SimpleConv": _plain(lambda width: nn.SimpleConv()),
    "GCNConv": _plain(lambda width: nn.GCNConv(width, width)),
    "ChebConv": _plain(lambda width: nn.ChebConv(width, width, K=2)),
    "SAGEConv": _plain(lambda width: nn.SAGEConv(width, width)),
    "GraphConv": _plain(lambda width: nn.GraphConv(width, width)),
    "GatedGraphConv": _plain(lambda width: nn.GatedGraphConv(width, num_layers=2)),
    "ResGatedGraphConv": _plain(lambda width: nn.ResGatedGraphConv(width, width)),
    "GATConv": _plain(lambda width: nn.GATConv(width, width // HEADS, heads=HEADS)),
    "GATv2Conv": _plain(lambda width: nn.GATv2Conv(width, width // HEADS, heads=HEADS)),
    "TransformerConv": _plain(lambda width: nn.TransformerConv(width, width // HEADS, heads=HEADS)),
    "AGNNConv": _plain(lambda width: nn.AGNNConv()),
    "TAGConv": _plain(lambda width: nn.TAGConv(width, width)),
    "GINConv": _plain(lambda width: nn.GINConv(_mlp(width, width))),
    "GINEConv": _with_attr(lambda width: nn.GINEConv(_mlp(width, width), edge_dim=ATTRIBUTES)),
    "ARMAConv": _plain(lambda width: nn.ARMAConv(width, width)),
    "SGConv": _plain(lambda width: nn.SGConv(width, width, K=2)),
    "SSGConv": _plain(lambda width: nn.SSGConv(width, width, alpha=0.1, K=2)),
    "APPNP": _plain(lambda width: nn.APPNP(K=2, alpha=0.1)),
    "MFConv": _plain(lambda width: nn.MFConv(width, width)),
    "RGCNConv": _typed(lambda width: nn.RGCNConv(width, width, RELATIONS)),
    "FastRGCNConv": _typed(lambda width: nn.FastRGCNConv(width, width, RELATIONS), NARROW),
    "RGATConv": _typed(_rgat),
    "SignedConv": Conv(lambda width, _: nn.SignedConv(width, width, first_aggr=True), _signed),
    "DNAConv": Conv(
        lambda width, _: nn.DNAConv(width),
        lambda layer, on: layer(on.x.unsqueeze(1).expand(-1, _STEPS, -1), on.edges),
    ),
    "PointNetConv": _of_points(lambda width: nn.PointNetConv(_mlp(width + 3, width))),
    "GMMConv": _on("x", "edges", "numbers")(lambda width: nn.GMMConv(width, width, dim=2, kernel_size=3)),
    "NNConv": _with_attr(lambda width: nn.NNConv(width, width, Linear(ATTRIBUTES, width * width)), NARROWER),
    "CGConv": _with_attr(lambda width: nn.CGConv(width, dim=ATTRIBUTES)),
    "EdgeConv": _plain(lambda width: nn.EdgeConv(_mlp(2 * width, width))),
    "PPFConv": Conv(
        lambda width, _: nn.PPFConv(_mlp(width + 4, width)),
        lambda layer, on: layer(on.x, on.points, torch.nn.functional.normalize(on.points), on.edges),
    ),
    "FeaStConv": _plain(lambda width: nn.FeaStConv(width, width, heads=HEADS)),
    "PointTransformerConv": _of_points(lambda width: nn.PointTransformerConv(width, width)),
    "HypergraphConv": _plain(lambda width: nn.HypergraphConv(width, width)),
    "LEConv": _plain(lambda width: nn.LEConv(width, width)),
    "PNAConv": _plain(_pna),
    "ClusterGCNConv": _plain(lambda width: nn.ClusterGCNConv(width, width)),
    "GENConv": _plain(lambda width: nn.GENConv(width, width)),
    "GCN2Conv": _with_first(lambda width: nn.GCN2Conv(width, alpha=0.1)),
    "WLConvContinuous": _plain(lambda width: nn.WLConvContinuous()),
    "FiLMConv": _plain(lambda width: nn.FiLMConv(width, width)),
    "SuperGATConv": _plain(lambda width: nn.SuperGATConv(width, width // HEADS, heads=HEADS)),
    "FAConv": _with_first(lambda width: nn.FAConv(width)),
    "EGConv": _plain(lambda width: nn.EGConv(width, width)),
    "PDNConv": _with_attr(
        lambda width: nn.PDNConv(width, width, edge_dim=ATTRIBUTES, hidden_channels=ATTRIBUTES)
    ),
    "GeneralConv": _plain(lambda width: nn.GeneralConv(width, width)),
    "HGTConv": _of_dictionaries(lambda width, on: nn.HGTConv(width, width, on.relations, heads=HEADS)),
    "HEATConv": Conv(
        lambda width, _: nn.HEATConv(width, width // HEADS, 2, RELATIONS, 8, ATTRIBUTES, 8, heads=HEADS),
        lambda layer, on: layer(on.x, on.edges, torch.arange(on.num_nodes) % 2, on.types, on.attr),
    ),
    "HeteroConv": _of_dictionaries(
        lambda width, on: nn.HeteroConv({kind: nn.SAGEConv(width, width) for kind in on.relations[1]})
    ),
    "HANConv": _of_dictionaries(lambda width, on: nn.HANConv(width, width, on.relations, heads=HEADS)),
    "LGConv": _plain(lambda width: nn.LGConv()),
    # Without a bias before a normalisation by the batch, whose gradient is 0 but for rounding.
    "PointGNNConv": _of_points(
        lambda width: nn.PointGNNConv(
            nn.MLP([width, width, 3], bias=False),
            nn.MLP([width + 3, width], bias=False),
            nn.MLP([width, width], bias=False),
        )
    ),
    "GPSConv": _plain(
        lambda width: nn.GPSConv(
            width, nn.GCNConv(width, width), heads=HEADS, attn_type="performer", norm=None
        )
    ),
    "AntiSymmetricConv": _plain(lambda width: nn.AntiSymmetricConv(width)),
    "DirGNNConv": _plain(lambda width: nn.DirGNNConv(nn.SAGEConv(width, width))),
    "MixHopConv": _plain(lambda width: nn.MixHopConv(width, width)),
    "MeshCNNConv": Conv(lambda width, _: nn.MeshCNNConv(width, width), _mesh),
}
"""Layers to be measured, by the names of their classes."""

MORE: dict[str, Conv] = {
    "EdgeConv-sum": _plain(lambda width: nn.EdgeConv(_mlp(2 * width, width), aggr="sum")),
    f"RGCNConv-{MANY}": _on("x", "edges", "many_types")(lambda width: nn.RGCNConv(width, width, MANY)),
    **{
        f"{'to_hetero' if whole else 'HeteroConv'}-{kind}": _of_relations(kind, whole)
        for whole in (False, True)
        for kind in ("SAGE", "GAT")
    },
}
"""Further cases."""
