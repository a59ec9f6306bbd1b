"""Linear steps before or after the aggregation: same results, fewer columns, PyG's order where it must be."""

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, GraphConv, Linear, SAGEConv, SGConv, TAGConv

import onehop
from onehop.integrations.pyg.aggregation import Aggregation
from tests.integrations.same import SINGLE, assert_same, noted, same, step

NODES, EDGES, NARROW, WIDE = 40, 300, 5, 24

# Layers whose other order is the cheaper one, and the width that is aggregated then.
LAYERS = {
    "GCN": lambda: GCNConv(NARROW, WIDE),
    "GCN, no loops": lambda: GCNConv(NARROW, WIDE, add_self_loops=False, bias=False),
    "GCN, improved": lambda: GCNConv(NARROW, WIDE, improved=True),
    "GCN, not normalised": lambda: GCNConv(NARROW, WIDE, normalize=False),
    "GCN, other flow": lambda: GCNConv(NARROW, WIDE, flow="target_to_source"),
    "SAGE": lambda: SAGEConv(WIDE, NARROW),
    "SAGE, sum": lambda: SAGEConv(WIDE, NARROW, aggr="sum"),
    "SAGE, normalised": lambda: SAGEConv(WIDE, NARROW, normalize=True),
    "SAGE, no root": lambda: SAGEConv(WIDE, NARROW, root_weight=False, bias=False),
    "Graph": lambda: GraphConv(WIDE, NARROW),
    "Graph, mean": lambda: GraphConv(WIDE, NARROW, aggr="mean", bias=False),
    "SG": lambda: SGConv(WIDE, NARROW, K=3),
    "SG, no loops": lambda: SGConv(WIDE, NARROW, K=1, add_self_loops=False, bias=False),
    "TAG": lambda: TAGConv(WIDE, NARROW, K=3),
    "TAG, not normalised": lambda: TAGConv(WIDE, NARROW, K=2, normalize=False, bias=False),
}
WEIGHTED = [name for name in LAYERS if not name.startswith("SAGE")]


@pytest.fixture
def edge_index() -> Tensor:
    return torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def widths(monkeypatch):
    """The widths of the aggregations that are computed."""
    return noted(monkeypatch, Aggregation, "computed", lambda aggregation: aggregation.x.size(-1))


def features(layer) -> Tensor:
    width = layer.in_channels[0] if isinstance(layer.in_channels, tuple) else layer.in_channels
    return torch.randn(NODES, width, generator=torch.Generator().manual_seed(1)).requires_grad_()


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_results_and_gradients_from_the_narrow_side(name, edge_index, widths):
    layer = LAYERS[name]()
    same(step(layer.double(), features(layer).double(), edge_index), times=1)
    assert set(widths) == {NARROW}


@pytest.mark.parametrize("name", WEIGHTED)
def test_edge_weights_with_a_gradient(name, edge_index, widths):
    layer, weight = LAYERS[name](), torch.rand(EDGES, generator=torch.Generator().manual_seed(2))
    same(step(layer.double(), features(layer).double(), edge_index, weight.double()), times=1)
    assert set(widths) == {NARROW}


@pytest.mark.parametrize("kind", [SAGEConv, GraphConv])
@pytest.mark.parametrize("own", [True, False], ids=["with the destinations' features", "without"])
def test_bipartite_features(kind, own, widths):
    edges = torch.stack([torch.randint(9, (50,)), torch.randint(6, (50,))])
    layer = kind((WIDE, 7), NARROW)
    x = (torch.randn(9, WIDE, requires_grad=True), torch.randn(6, 7) if own else None)
    same(lambda: layer(x, edges, size=(9, 6)), times=1, **SINGLE)
    assert widths == [NARROW] * 2


@pytest.mark.parametrize(
    ("make", "width"),
    [
        (lambda: GCNConv(WIDE, NARROW), NARROW),
        (lambda: SAGEConv(NARROW, WIDE), NARROW),
        (lambda: GraphConv(NARROW, WIDE), NARROW),
        (lambda: GCNConv(NARROW, NARROW), NARROW),
        (lambda: SAGEConv(WIDE, NARROW, aggr="max"), WIDE),
        (lambda: SAGEConv(WIDE, NARROW, project=True), WIDE),
    ],
    ids=["GCN", "SAGE", "Graph", "a tie", "max", "projected"],
)
def test_pygs_order_where_it_is_cheaper_or_must_be(make, width, edge_index, widths):
    layer = make()
    with onehop.patch():
        layer(features(layer), edge_index)
        report = onehop.explain(layer, features(layer), edge_index)
    assert set(widths) == {width}
    assert "linear step" not in str(report)


@pytest.mark.usefixtures("ordinary_bounds")
def test_features_without_a_gradient_weigh_half(edge_index, widths):
    # (A X) W aggregates 6 columns, once; A (X W) 4 columns, forward and backward.
    layer = SAGEConv(6, 4)
    with onehop.patch():
        layer(torch.randn(NODES, 6), edge_index).sum().backward()
        assert widths == [6]
        layer(torch.randn(NODES, 6, requires_grad=True), edge_index).sum().backward()
        assert widths == [6, 4]
        with torch.no_grad():
            layer(torch.randn(NODES, 6), edge_index)
        assert widths == [6, 4, 4]


@pytest.mark.parametrize("name", ["GCN", "SAGE", "SG", "TAG"])
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_it_can_be_turned_off(name, how, edge_index, widths, monkeypatch):
    layer = LAYERS[name]()
    if how == "environment":
        monkeypatch.setenv("ONEHOP_ASSOCIATE", "0")
    with onehop.patch(associate=False if how == "argument" else None):
        layer(features(layer), edge_index)
    assert set(widths) == {WIDE}


def test_leaving_the_block_puts_the_choice_back(edge_index, widths):
    layer = LAYERS["SAGE"]()
    with onehop.patch(associate=False):
        with onehop.patch(associate=True):
            layer(features(layer), edge_index)
        layer(features(layer), edge_index)
    assert widths == [NARROW, WIDE]


@pytest.mark.parametrize("name", ["GCN", "SAGE", "SG", "TAG"])
def test_explain_says_so(name, edge_index):
    layer = LAYERS[name]()
    with onehop.patch():
        report = str(onehop.explain(layer, features(layer), edge_index))
    assert ("before its linear step" if name == "GCN" else "after its linear step") in report


@pytest.mark.parametrize(
    ("name", "lin"), [("GCN", "lin"), ("SAGE", "lin_l"), ("SG", "lin"), ("TAG", "lins.0")]
)
def test_a_hooked_linear_step_stays_in_its_place(name, lin, edge_index, widths):
    layer = LAYERS[name]()
    shapes = []
    layer.get_submodule(lin).register_forward_hook(
        lambda module, given, out: shapes.append(given[0].shape[1])
    )
    with onehop.patch():
        layer(features(layer), edge_index)
    assert set(widths) == {WIDE}
    assert shapes == [NARROW if name == "GCN" else WIDE]


def test_a_bias_at_a_step_is_added_at_that_step(edge_index):
    layer = LAYERS["TAG"]()
    layer.lins[1] = Linear(WIDE, NARROW)
    x = features(layer)
    same(lambda: layer(x, edge_index), **SINGLE)


def test_a_cached_layer_still_caches(edge_index):
    gcn, sg = GCNConv(NARROW, WIDE, cached=True), SGConv(WIDE, NARROW, cached=True)
    with onehop.patch():
        for layer in (gcn, sg):
            layer(features(layer).detach(), edge_index)
    assert gcn._cached_edge_index is not None
    assert sg._cached_x is not None


# PyG's gradient of the weight is NaN there: the product comes first, or the node's row is normalised.
NAN_IN_PYG = ["GCN, no loops", "GCN, not normalised", "SAGE, normalised"]


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in NAN_IN_PYG])
def test_sources_that_no_edge_leaves_may_be_infinite(name, edge_index):
    """0 times infinity is NaN: in the gradient of a product, but in no aggregate."""
    layer, lonely = LAYERS[name]().double(), edge_index % (NODES - 1)
    x = features(layer).detach().double()
    x[-1] = torch.inf
    same(step(layer, x.requires_grad_(), lonely), times=1)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_nan_at_a_node_without_edges_stays_out_of_the_weights_gradient(compiled, edge_index):
    """As when a row of zeros is divided by its norm, in a loss that omits it."""
    layer = LAYERS["GCN, no loops"]().double()
    ends = torch.stack([edge_index[0], edge_index[1] % (NODES - 1)])
    x = features(layer).detach().double().requires_grad_()

    def gradients(model):
        out = model(x, ends)
        grad = torch.ones_like(out)
        grad[-1] = torch.nan
        return torch.autograd.grad(out, [x, layer.lin.weight], grad)

    expected = gradients(layer)
    assert all(each.isfinite().all() for each in expected)
    with onehop.patch():
        found = gradients(torch.compile(layer, fullgraph=True) if compiled else layer)
    assert_same(found, expected)


def test_an_overridden_message_is_kept(edge_index):
    class Doubling(SAGEConv):
        def message(self, x_j):
            return 2 * x_j

    layer = Doubling(WIDE, NARROW)
    x = features(layer)
    same(lambda: layer(x, edge_index), **SINGLE)


@pytest.mark.parametrize("kind", [GCNConv, SAGEConv])
def test_an_overridden_propagate_is_called(kind, edge_index):
    class Doubling(kind):
        def propagate(self, *args, **kwargs):
            return 2 * super().propagate(*args, **kwargs)

    layer = Doubling(NARROW, WIDE) if kind is GCNConv else Doubling(WIDE, NARROW)
    x = features(layer)
    same(lambda: layer(x, edge_index), **SINGLE)
