"""Layers that take other operands than those in ``layers.py``, such as types of nodes, in every context."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn.models import InnerProductDecoder

from tests.integrations.pyg.conftest import make_edges
from tests.integrations.pyg.contexts import CONTEXTS
from tests.integrations.pyg.layers import WIDTH
from tests.integrations.pyg.test_contexts import BOUNDS, compare
from tests.pairs import pairwise

EDGES, HYPEREDGES, KINDS = 90, 9, 5
NODES = {"x": 20, "author": 14, "venue": 6}
OF_TYPES = {
    (source, name, target): make_edges(NODES[source], NODES[target], count)
    for source, name, target, count in [
        ("author", "writes", "x", 60),
        ("x", "cites", "x", 90),
        ("x", "written by", "author", 60),
        ("venue", "holds", "x", 4),
    ]
}
METADATA = (list(NODES), list(OF_TYPES))
EDGE_INDEX = make_edges(20, 20, EDGES)
TYPES = torch.arange(EDGES) % KINDS
X = {"x": (20, WIDTH)}


def of_types(model: torch.nn.Module, **x: Tensor) -> Tensor:
    return torch.cat([out for out in model(x, OF_TYPES).values() if out is not None])


def of_relations(model: torch.nn.Module, x: Tensor) -> Tensor:
    return model(x, EDGE_INDEX, TYPES)


def rgat() -> torch.nn.Module:
    layer = gnn.RGATConv(WIDTH, 4, KINDS, heads=2)
    torch.nn.init.normal_(layer.l2)  # which PyG leaves as the memory was
    return layer


# Each layer, how it is called, and the shapes of its operands.
LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[..., Tensor], dict[str, tuple[int, ...]]]] = {
    **{
        kind.__name__: (
            lambda kind=kind: kind(WIDTH, 8, METADATA, heads=2),
            of_types,
            {name: (count, WIDTH) for name, count in NODES.items()},
        )
        for kind in (gnn.HGTConv, gnn.HANConv)
    },
    "RGCNConv": (lambda: gnn.RGCNConv(WIDTH, 4, KINDS), of_relations, X),
    "FastRGCNConv": (lambda: gnn.FastRGCNConv(WIDTH, 4, KINDS), of_relations, X),
    "RGATConv": (rgat, of_relations, X),
    "HEATConv": (
        lambda: gnn.HEATConv(WIDTH, 4, 3, KINDS, 5, 3, 2, heads=2),
        lambda m, x, attr: m(x, EDGE_INDEX, torch.arange(20) % 3, TYPES, attr),
        {**X, "attr": (EDGES, 3)},
    ),
    "HypergraphConv": (
        lambda: gnn.HypergraphConv(WIDTH, 4, use_attention=True, heads=2),
        lambda m, x, weight, attr: m(x, EDGE_INDEX % HYPEREDGES, weight, attr, HYPEREDGES),
        {**X, "weight": (HYPEREDGES,), "attr": (HYPEREDGES, WIDTH)},
    ),
    "EGConv": (
        lambda: gnn.EGConv(WIDTH, 8, ["symnorm", "std", "max"], num_heads=2, num_bases=3),
        lambda m, x: m(x, EDGE_INDEX),
        X,
    ),
    "PointTransformerConv": (
        lambda: gnn.PointTransformerConv(WIDTH, 4),
        lambda m, x, pos: m(x, pos, EDGE_INDEX),
        {**X, "pos": (20, 3)},
    ),
    "bipartite GATConv": (
        lambda: gnn.GATConv((WIDTH, 5), 4, heads=2, add_self_loops=False),
        lambda m, x, target: m((x, target), EDGE_INDEX),
        {**X, "target": (20, 5)},
    ),
    "signals": (
        lambda: gnn.GraphConv(WIDTH, 5, aggr="max"),
        lambda m, x: m(x, EDGE_INDEX),
        {"x": (3, 20, WIDTH)},
    ),
    "InnerProductDecoder": (InnerProductDecoder, lambda m, x: m(x, EDGE_INDEX), X),
}


@pairwise(name=LAYERS, context=CONTEXTS, bounds=BOUNDS)
# Torch's own notes of missing batching rules.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_the_patch_changes_nothing(name: str, context: str, bounds: str, monkeypatch: Any) -> None:
    make, call, shapes = LAYERS[name]
    generator = torch.Generator().manual_seed(1)
    operands = {
        each: torch.randn(shape, generator=generator, dtype=torch.float64) for each, shape in shapes.items()
    }
    torch.manual_seed(0)
    made = make().double()
    assert call(made, **operands).isfinite().all()
    compare(made, call, operands, context, bounds, monkeypatch)
