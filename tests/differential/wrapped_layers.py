"""Layers that take more than features and edges, made to take no more than these and what edges have."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module
from torch_geometric import nn as pyg

from tests.differential.tensors import ATTRIBUTES, RELATIONS


class OfPoints(Module):
    """PointTransformerConv, with the features as positions."""

    def __init__(self, inp: int, out: int, **options: Any) -> None:
        super().__init__()
        self.conv = pyg.PointTransformerConv(inp, out, pos_nn=Linear(inp, out), **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, x, edge_index)


class OfPositions(Module):
    """PointNetConv, with the features as positions."""

    def __init__(self, inp: int, out: int, **options: Any) -> None:
        super().__init__()
        self.conv = pyg.PointNetConv(Linear(2 * inp, out), **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, x, edge_index)


class OfSurfaces(Module):
    """PPFConv, with positions and normals that are made of the features."""

    def __init__(self, inp: int, out: int, **options: Any) -> None:
        super().__init__()
        self.positions, self.normals = Linear(inp, 3), Linear(inp, 3)
        self.conv = pyg.PPFConv(Linear(inp + 4, out), **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, self.positions(x), self.normals(x), edge_index)


class OfDisplacedPoints(Module):
    """PointGNNConv, with positions that are made of the features."""

    def __init__(self, inp: int, **options: Any) -> None:
        super().__init__()
        self.positions = Linear(inp, 3)
        self.conv = pyg.PointGNNConv(Linear(inp, 3), Linear(inp + 3, inp), Linear(inp, inp), **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, self.positions(x), edge_index)


class OfTypes(Module):
    """HEATConv, with nodes of two types by turns."""

    def __init__(self, inp: int, out: int, **options: Any) -> None:
        super().__init__()
        self.conv = pyg.HEATConv(inp, out, 2, RELATIONS, 3, ATTRIBUTES, 4, **options)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_attr: Tensor) -> Tensor:
        node_type = torch.arange(x.size(0)) % 2
        return self.conv(x, edge_index, node_type, edge_type, edge_attr)


class OfHyperedges(Module):
    """HypergraphConv, with a hyperedge for each node, which has its features."""

    def __init__(self, inp: int, out: int, **options: Any) -> None:
        super().__init__()
        self.conv = pyg.HypergraphConv(inp, out, **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index, hyperedge_attr=x, num_edges=x.size(0))


class OfSigns(Module):
    """SignedConv, twice, with the same edges for both signs, and the sum of what it makes of these."""

    def __init__(self, inp: int, out: int, **options: Any) -> None:
        super().__init__()
        self.first = pyg.SignedConv(inp, 3, first_aggr=True, **options)
        self.second = pyg.SignedConv(3, out, first_aggr=False, **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        both = self.second(self.first(x, edge_index, edge_index), edge_index, edge_index)
        return torch.add(*both.chunk(2, 1))


class OfLayers(Module):
    """DNAConv, whose nodes have the rows of two layers."""

    def __init__(self, inp: int, out: int, **options: Any) -> None:
        super().__init__()
        self.lin = Linear(inp, out)
        self.conv = pyg.DNAConv(out, **options)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        x = self.lin(x)
        return self.conv(torch.stack([x, x.tanh()], 1), edge_index, edge_weight)


class OfRelations(Module):
    """A layer for edges of several types, each of which is a relation of the same nodes."""

    KINDS = tuple(("node", f"type{number}", "node") for number in range(RELATIONS))

    def __init__(self, conv: Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        edges = {kind: edge_index[:, edge_type == number] for number, kind in enumerate(self.KINDS)}
        return self.conv({"node": x}, edges)["node"]


def hgt(inp: int, out: int, heads: int = 1) -> Module:
    """HGTConv; ``out`` columns of each head."""
    return OfRelations(pyg.HGTConv(inp, heads * out, (["node"], list(OfRelations.KINDS)), heads=heads))


def han(inp: int, out: int, heads: int = 1, **options: Any) -> Module:
    """HANConv; ``out`` columns of each head."""
    metadata = (["node"], list(OfRelations.KINDS))
    return OfRelations(pyg.HANConv(inp, heads * out, metadata, heads=heads, **options))


def hetero(inp: int, out: int, **options: Any) -> Module:
    """HeteroConv, of a SAGEConv for each relation."""
    return OfRelations(
        pyg.HeteroConv({kind: pyg.SAGEConv(inp, out) for kind in OfRelations.KINDS}, **options)
    )
