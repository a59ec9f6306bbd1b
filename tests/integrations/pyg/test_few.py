"""Layers over few edges, of which no graph is made, against PyG."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn, utils
from torch_geometric.nn import conv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import onehop
from onehop import thresholds
from onehop.ops.few import MOST_EDGES

NODES, WIDTH = 12, 6
LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "GCNConv": lambda: conv.GCNConv(WIDTH, 4),
    "GCNConv improved": lambda: conv.GCNConv(WIDTH, 4, improved=True),
    "GCNConv without loops": lambda: conv.GCNConv(WIDTH, 4, add_self_loops=False),
    "GCNConv of edges as they are": lambda: conv.GCNConv(WIDTH, 4, normalize=False, bias=False),
    "GCNConv backwards": lambda: conv.GCNConv(WIDTH, 4, flow="target_to_source"),
    "SAGEConv": lambda: conv.SAGEConv(WIDTH, 4),
    "SAGEConv of a sum": lambda: conv.SAGEConv(WIDTH, 4, aggr="sum", root_weight=False),
    "SAGEConv of a max": lambda: conv.SAGEConv(WIDTH, 4, aggr="max", normalize=True),
    "SAGEConv of a min": lambda: conv.SAGEConv(WIDTH, 4, aggr="min", project=True),
    "SAGEConv backwards": lambda: conv.SAGEConv(WIDTH, 4, flow="target_to_source"),
    "GraphConv": lambda: conv.GraphConv(WIDTH, 4),
    "GraphConv of a mean": lambda: conv.GraphConv(WIDTH, 4, aggr="mean", bias=False),
    "GINConv": lambda: conv.GINConv(torch.nn.Linear(WIDTH, 4), train_eps=True),
    "TAGConv": lambda: conv.TAGConv(WIDTH, 4, K=2),
    "SGConv": lambda: conv.SGConv(WIDTH, 4, K=2),
    "SSGConv": lambda: conv.SSGConv(WIDTH, 4, alpha=0.1, K=2),
    "LGConv": lambda: conv.LGConv(),
    "ClusterGCNConv": lambda: conv.ClusterGCNConv(WIDTH, 4),
    "APPNP": lambda: conv.APPNP(2, 0.1),
    "ChebConv": lambda: conv.ChebConv(WIDTH, 4, K=3),
    "GATConv": lambda: conv.GATConv(WIDTH, 3, heads=2),
    "GATConv of a mean of heads": lambda: conv.GATConv(WIDTH, 3, heads=2, concat=False, bias=False),
    "GATConv without loops": lambda: conv.GATConv(WIDTH, 3, add_self_loops=False, negative_slope=0.01),
    "GATv2Conv": lambda: conv.GATv2Conv(WIDTH, 3, heads=2),
    "GATv2Conv of one weight": lambda: conv.GATv2Conv(WIDTH, 17, share_weights=True),
    "TransformerConv": lambda: conv.TransformerConv(WIDTH, 3, heads=2),
    "TransformerConv with beta": lambda: conv.TransformerConv(WIDTH, 3, heads=2, beta=True, concat=False),
}
# What few edges do not take: PyG's code runs.
OTHERS: dict[str, Callable[[], torch.nn.Module]] = {
    "GATConv with dropout": lambda: conv.GATConv(WIDTH, 3, dropout=0.5),
    "SAGEConv of a median": lambda: conv.SAGEConv(WIDTH, 4, aggr="median"),
    "ARMAConv": lambda: conv.ARMAConv(WIDTH, 4),
    "EdgeConv": lambda: conv.EdgeConv(torch.nn.Linear(2 * WIDTH, 4)),
    "ResGatedGraphConv": lambda: conv.ResGatedGraphConv(WIDTH, 4),
    "LEConv": lambda: conv.LEConv(WIDTH, 4),
    "AGNNConv": lambda: conv.AGNNConv(),
    "SuperGATConv": lambda: conv.SuperGATConv(WIDTH, 4),
}


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds as users have them: other tests have no few edges."""
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)


def some_edges(count: int, nodes: int = NODES, seed: int = 0) -> Tensor:
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(seed))


def features(nodes: int = NODES, dtype: torch.dtype = torch.float32) -> Tensor:
    # Some are equal, some are 0.
    return torch.randn(nodes, WIDTH, generator=torch.Generator().manual_seed(1)).round(decimals=1).to(dtype)


def outcome(layer: torch.nn.Module, *args: Any, **kwargs: Any) -> list[Any]:
    """The result and all gradients, or the class and the text of an error."""
    torch.manual_seed(0)
    layer.zero_grad()
    x = args[0]
    leaves = [each.detach().clone().requires_grad_() for each in (x if isinstance(x, tuple) else (x,))]
    try:
        out = layer(tuple(leaves) if isinstance(x, tuple) else leaves[0], *args[1:], **kwargs)
        out.square().sum().backward()
    except (RuntimeError, IndexError, ValueError) as error:
        return [type(error), str(error)]
    return [out.detach(), *(each.grad for each in (*leaves, *layer.parameters()))]


def assert_same(layer: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
    expected = outcome(layer, *args, **kwargs)
    with onehop.patch():
        assert_close(outcome(layer, *args, **kwargs), expected)
        with torch.no_grad():
            layer(*args, **kwargs) if isinstance(expected[0], Tensor) else None


def assert_close(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for mine, expected in zip(ours, theirs, strict=True):
        if isinstance(expected, Tensor):
            assert isinstance(mine, Tensor)
            torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            assert mine == expected


@pytest.mark.parametrize("count", [0, 1, 30, 200])
@pytest.mark.parametrize("name", [*LAYERS, *OTHERS])
def test_values_and_gradients_are_pygs(name: str, count: int) -> None:
    layer = {**LAYERS, **OTHERS}[name]()
    assert_same(layer, features(), some_edges(count))
    assert_same(layer.double(), features(dtype=torch.float64), some_edges(count).t().contiguous().t())


@pytest.mark.parametrize("name", LAYERS)
def test_no_graph_is_made(name: str) -> None:
    layer = LAYERS[name]()
    onehop.clear_cache()
    with onehop.patch():
        report = onehop.explain(layer, features(), some_edges(30))
        assert "fast: " in str(report)
        layer(features(), some_edges(30))
    assert not onehop.cache_info().entries


@pytest.mark.parametrize("name", LAYERS)
def test_numbers_of_nodes_that_are_none_are_pygs_errors(name: str) -> None:
    for row in (0, 1):
        edges = some_edges(30)
        edges[row, 3] = NODES
        assert_same(LAYERS[name](), features(), edges)


@pytest.mark.parametrize("name", ["GCNConv", "GraphConv", "TAGConv", "SGConv", "LGConv", "GCNConv improved"])
def test_weights_of_edges(name: str) -> None:
    weight = torch.rand(30, generator=torch.Generator().manual_seed(2))
    edges = some_edges(30)
    edges[:, :4] = edges[:1, :4]  # loops, of which one node has two
    edges[:, 1] = edges[:, 0]
    assert_same(LAYERS[name](), features(), edges, weight)
    assert_same(LAYERS[name](), features(), edges, -weight)
    learned = [weight.clone().requires_grad_() for _ in range(2)]
    layer = LAYERS[name]()
    layer(features(), edges, learned[0]).square().sum().backward()
    with onehop.patch():
        layer(features(), edges, learned[1]).square().sum().backward()
    torch.testing.assert_close(learned[1].grad, learned[0].grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["SAGEConv", "SAGEConv of a max", "GraphConv", "GINConv"])
def test_bipartite(name: str) -> None:
    edges = torch.stack([some_edges(30)[0], some_edges(30, 5)[1]])
    assert_same(LAYERS[name](), (features(), features(5)), edges)
    assert_same(LAYERS[name](), (features(), features(5)), edges, size=(NODES, 5))
    assert_same(LAYERS[name](), (features(), features(5)), edges, size=(NODES, 6))


@pytest.mark.parametrize("kind", [conv.GATConv, conv.GATv2Conv, conv.TransformerConv])
def test_bipartite_attention(kind: Any) -> None:
    edges = torch.stack([some_edges(30)[0], some_edges(30, 5)[1]])
    options = {} if kind is conv.TransformerConv else {"add_self_loops": False}
    assert_same(kind((WIDTH, WIDTH), 4, heads=2, **options), (features(), features(5)), edges)


def test_sizes_at_the_bounds() -> None:
    """One edge less than few, as many, and one more, at the width at which work decides, and at any width."""
    bounds = thresholds.now
    few = bounds.few_edges
    for count in (few // 32, few // 4, few, MOST_EDGES, bounds.few_work // WIDTH):
        for edges in (count - 1, count, count + 1):
            for name in ("GCNConv", "SAGEConv", "SAGEConv of a max", "GATConv", "GATv2Conv", "AGNNConv"):
                layer = {**LAYERS, **OTHERS}[name]()
                assert_same(layer, features(200), some_edges(edges, 200))


def test_more_nodes_than_edges() -> None:
    for name in ("GCNConv", "SAGEConv", "GATConv"):
        assert_same(LAYERS[name](), features(MOST_EDGES + 1), some_edges(20, MOST_EDGES + 1))


@pytest.mark.parametrize("layout", ["rows", "columns", "every other", "int32", "a pair"])
def test_layouts_of_edges(layout: str) -> None:
    edges: Any = some_edges(30)
    edges = {
        "rows": edges,
        "columns": edges.t().contiguous().t(),
        "every other": edges.repeat_interleave(2, 1)[:, ::2],
        "int32": edges.int(),
        "a pair": edges[:, :0],
    }[layout]
    for name in ("GCNConv", "SAGEConv", "GATConv", "TransformerConv"):
        assert_same(LAYERS[name](), features(), edges)


@pytest.mark.parametrize("count", [0, 1, 30])
def test_loops_and_norms_are_pygs(count: int) -> None:
    edges = some_edges(count)
    weight = torch.rand(count)
    calls: list[Callable[[], Any]] = [
        lambda: utils.add_self_loops(edges, num_nodes=NODES)[0],
        lambda: utils.remove_self_loops(edges)[0],
        lambda: utils.add_self_loops(edges)[0],
        lambda: utils.remove_self_loops(edges, weight),
        lambda: gcn_norm(edges, None, NODES),
        lambda: gcn_norm(edges, weight, NODES),
        lambda: gcn_norm(edges, weight, NODES, improved=True),
        lambda: gcn_norm(edges, None, NODES, add_self_loops=False, flow="target_to_source"),
        lambda: gcn_norm(edges, weight, NODES, add_self_loops=False),
        lambda: gcn_norm(edges, None, NODES, dtype=torch.float64),
        lambda: gcn_norm(edges, None, NODES, dtype=torch.bfloat16),
    ]
    for call in calls:
        expected = call()
        with onehop.patch():
            found = call()
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs)
            assert mine.stride() == theirs.stride()


def test_whole_models_are_pygs() -> None:
    for make in (nn.GCN, nn.GraphSAGE, nn.GIN, nn.GAT):
        torch.manual_seed(0)
        model = make(WIDTH, 8, num_layers=3)
        assert_same(model, features(), some_edges(40))


@pytest.mark.parametrize("name", ["SAGEConv", "GraphConv"])
def test_weights_that_are_no_parameters_and_steps_that_are_missing(name: str) -> None:
    layer: Any = LAYERS[name]()
    linear, root = ("lin_l", "lin_r") if name == "SAGEConv" else ("lin_rel", "lin_root")
    weight = getattr(layer, linear).weight.detach() * 2
    del getattr(layer, linear).weight
    getattr(layer, linear).weight = weight
    assert_same(layer, features(), some_edges(30))
    delattr(layer, root)
    with onehop.patch(), pytest.raises(AttributeError, match=root):
        layer(features(), some_edges(30))


def test_inference_mode() -> None:
    layer = LAYERS["GCNConv"]()
    expected = layer(features(), some_edges(30)).detach()
    with onehop.patch(), torch.inference_mode():
        out = layer(features(), some_edges(30))
        assert out.is_inference()
        torch.testing.assert_close(out, expected)
