"""Attention layers: fused, with weights where somebody asks for them; weighted sums; else PyG's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn import Linear, MessagePassing

import onehop
from onehop import thresholds
from tests.integrations.same import (
    HALF,
    SINGLE,
    assert_same,
    fast,
    forms,
    noted,
    refused,
    same,
    same_after,
    same_error,
    step,
)
from tests.pairs import pairwise

WIDTH = 6
BY_PYG = "source * weight for each head, weights by PyG"
COMPILED = "its message, compiled"

LAYERS: dict[str, Callable[..., MessagePassing]] = {
    "GAT": lambda **kw: gnn.GATConv(WIDTH, 4, heads=3, **kw),
    "GATv2": lambda **kw: gnn.GATv2Conv(WIDTH, 4, heads=3, **kw),
    "Transformer": lambda **kw: gnn.TransformerConv(WIDTH, 4, heads=3, **kw),
}
FUSED = {"GAT": "GAT, fused", "GATv2": "GATv2, fused", "Transformer": "dot-product attention, fused"}


@pytest.fixture
def edge_attr() -> Tensor:
    return torch.randn(90, 3, generator=torch.Generator().manual_seed(6))


@pytest.fixture(params=list(LAYERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(name: str) -> Callable[..., MessagePassing]:
    def build(**kwargs: Any) -> MessagePassing:
        torch.manual_seed(0)
        return LAYERS[name](**kwargs)

    return build


def went(layer: MessagePassing, *args: Any, **kwargs: Any) -> list[str]:
    """Compares the results of three calls under the patch; returns what ran."""
    return forms(same(lambda: layer(*args, **kwargs), **SINGLE))


# Who asks for weights


@pairwise(dropout=[0.0, 0.5], asked=[True, False])
@pytest.mark.parametrize("featured", [False, True], ids=["plain", "edges"])
def test_weights_that_are_asked_for_come_with_the_fused_result(
    name, make, featured, dropout, asked, x, edge_index, edge_attr
):
    conv = make(dropout=dropout, edge_dim=3 if featured else None).double()
    extra = (edge_attr.double(),) if featured else ()
    calls = fast(step(conv, x.double(), edge_index, *extra, return_attention_weights=asked), rtol=1e-10)
    assert forms(calls) == [f"{FUSED[name]}, with weights"]


def test_weights_asked_for_by_position(x, edge_index):
    assert went(gnn.GATConv(WIDTH, 4), x, edge_index, None, None, True) == ["GAT, fused, with weights"]


@pytest.mark.parametrize(
    ("conv", "form"),
    [
        (gnn.FAConv(WIDTH, dropout=0.5), "source * tanh of scores * weight"),
        (gnn.TransformerConv(WIDTH, 4), "dot-product attention, fused, with weights"),
    ],
)
def test_layers_keep_no_weights(conv, form, x, edge_index):
    first = (x,) if isinstance(conv, gnn.FAConv) else ()
    assert went(conv, x, *first, edge_index, return_attention_weights=True) == [form]
    with onehop.patch():
        conv(x, *first, edge_index, return_attention_weights=True)
    assert conv._alpha is None


# Dropout


@pairwise(
    dtype=[torch.float32, torch.float64, torch.bfloat16], probability=[0.0, 0.3, 1.0], training=[True, False]
)
def test_the_same_seed_drops_the_same_weights(name, make, probability, training, dtype, x, edge_index):
    conv, x = make(dropout=probability).to(dtype).train(training), x.to(dtype)
    tolerance = 0.1 if dtype is torch.bfloat16 else 1e-5
    calls = same(lambda: conv(x, edge_index), rtol=tolerance, atol=tolerance)
    assert forms(calls) == [FUSED[name]]


# Shapes


@pytest.mark.parametrize("sources", [20, 9])
def test_bipartite_features(name, edges, sources):
    torch.manual_seed(0)
    kind = {"GAT": gnn.GATConv, "GATv2": gnn.GATv2Conv, "Transformer": gnn.TransformerConv}[name]
    kwargs = {} if name == "Transformer" else {"add_self_loops": False}
    pair = (torch.randn(sources, WIDTH), torch.randn(12, 5))
    assert went(kind((WIDTH, 5), 4, heads=2, **kwargs), pair, edges(sources, 12, 60)) == [FUSED[name]]


def test_bipartite_gat_with_self_loops(edges):
    pair = (torch.ones(20, WIDTH), torch.ones(12, 5))
    assert went(gnn.GATConv((WIDTH, 5), 4, heads=2), pair, edges(20, 12, 60)) == ["GAT, fused"]


@pytest.mark.parametrize("size", [None, (20, 12), (20, 20)], ids=str)
def test_gat_without_features_of_the_destinations(size, edges):
    conv, x = gnn.GATConv((WIDTH, 5), 4, heads=2, add_self_loops=False), torch.randn(20, WIDTH)
    assert went(conv, (x, None), edges(20, 12, 60), size=size) == ["GAT, fused"]


@pytest.mark.parametrize("kind", [gnn.GATConv, gnn.GATv2Conv])
def test_edge_features_in_one_dimension(kind, x, edge_index):
    conv = kind(WIDTH, 4, edge_dim=1)
    assert went(conv, x, edge_index, torch.ones(90)) == [f"{kind.__name__[:-4]}, fused"]


def test_a_lazy_layer(x, edge_index):
    with onehop.patch():
        conv = gnn.GATConv(-1, 4, heads=2)
        conv(x, edge_index)
    assert went(conv, x, edge_index) == ["GAT, fused"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30], ids=str)
def test_special_features(make, value, x, edge_index):
    conv = make()
    x[3] = value
    atol = 1e-5 * value if value == 1e30 else 1e-5
    same(torch.no_grad()(lambda: conv(x, edge_index)), rtol=1e-5, atol=atol)


# The derived edges


@pytest.mark.parametrize("featured", [False, True], ids=["plain", "edges"])
def test_the_graph_is_made_once(make, featured, x, edge_index, edge_attr, bounds):
    conv = make(edge_dim=3 if featured else None)
    extra = (edge_attr,) if featured else ()
    # PyG gathers and scatters by indices that are new in each call.
    bounds(index_numbers=1 << 40)
    with onehop.patch():
        conv(x, edge_index, *extra)
        before = onehop.cache_info()
        conv(x, edge_index, *extra)
        after = onehop.cache_info()
    assert (after.misses, after.entries) == (before.misses, before.entries)


@pytest.mark.parametrize("fill_value", ["mean", "add", "min", 2.0, torch.tensor([1.0, 2.0, 3.0])], ids=str)
def test_attributes_of_self_loops_are_pygs(fill_value, x, edge_index, edge_attr):
    torch.manual_seed(0)
    conv = gnn.GATConv(WIDTH, 4, heads=2, edge_dim=3, fill_value=fill_value)
    fast(step(conv, x, edge_index, edge_attr), **SINGLE)


def test_edits_in_place_are_noticed(make, x, edge_index, edge_attr):
    conv = make(edge_dim=3)

    def edit() -> None:
        edge_index[0, :10] = 2
        edge_attr[:5] = 7

    same_after(lambda: conv(x, edge_index, edge_attr), edit, **SINGLE)


def test_writing_to_the_edges_that_come_back_is_noticed(x, edge_index):
    conv = gnn.GATConv(WIDTH, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        _, (derived, _) = conv(x, edge_index, return_attention_weights=True)
        derived[:, :20] = 0
        assert_same(conv(x, edge_index), expected, **SINGLE)


@pytest.mark.parametrize(("row", "value"), [(0, 20), (1, 20), (0, -1)], ids=str)
def test_bad_node_numbers_are_pygs_error(make, row, value, x, edge_index):
    edge_index[row, 7] = value
    conv = make()
    same_error(lambda: conv(x, edge_index))


@pytest.mark.parametrize(
    ("conv", "rows"),
    [
        (gnn.TransformerConv(WIDTH, 4, edge_dim=3), None),
        (gnn.GATv2Conv(WIDTH, 4), 90),
        (gnn.GATConv(WIDTH, 4, edge_dim=2), 90),
        (gnn.GATConv(WIDTH, 4, edge_dim=3, add_self_loops=False), 80),
    ],
)
def test_edge_features_that_do_not_fit_are_pygs_error(conv, rows, x, edge_index, edge_attr):
    same_error(lambda: conv(x, edge_index, None if rows is None else edge_attr[:rows]))


@pytest.mark.usefixtures("ordinary_bounds")
@pytest.mark.parametrize(
    ("kind", "aggr", "form"),
    [
        *((gnn.GATConv, aggr, BY_PYG) for aggr in ("mean", "max", "min")),
        (gnn.GATConv, "std", COMPILED),
        (gnn.TransformerConv, "max", "its aggregation is not a sum"),
    ],
)
def test_other_aggregations(kind, aggr, form, x, edge_index):
    assert went(kind(WIDTH, 4, aggr=aggr), x, edge_index) == [form]


@pytest.mark.parametrize(("columns", "over", "products"), [(2, 1 << 20, 0), (3, 1, 1), (3, 0, 0)])
def test_features_of_many_columns_are_multiplied_before(
    columns, over, products, make, name, x, edge_index, edge_attr, monkeypatch
):
    conv = make(edge_dim=columns)
    seen = noted(monkeypatch, Linear, "forward", lambda layer, x: layer)
    features = edge_attr[:, :columns].clone().requires_grad_()
    edges = edge_index.size(1)
    if name == "GATv2":
        # New self loops take the place of old ones.
        edges = int((edge_index[0] != edge_index[1]).sum()) + len(x)
    product = edges * conv.heads * conv.out_channels * 4
    with thresholds.changed(edge_columns=3, cached_bytes=product + over):
        assert went(conv, x, edge_index, features) == [FUSED[name]]
        seen.clear()
        with onehop.patch():
            conv(x, edge_index, features)
    # GATConv's part of the score is a product with few columns whatever the features have.
    assert seen.count(conv.lin_edge) == (0 if name == "GAT" else products)


def test_weights_under_autocast(name, make, x, edge_index):
    conv = make()

    def run() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return conv(x, edge_index, return_attention_weights=True)

    assert forms(same(run, **HALF)) == [f"{FUSED[name]}, with weights"]


def test_hooks_on_the_projection_of_edges_are_called(make, name, x, edge_index, edge_attr):
    conv, seen = make(edge_dim=3), []
    conv.lin_edge.register_forward_hook(lambda *_: seen.append(1))
    assert went(conv, x, edge_index, edge_attr) == [FUSED[name]]
    assert len(seen) == 4


def test_a_projection_of_edges_that_was_replaced(make, name, x, edge_index, edge_attr):
    conv = make(edge_dim=3)
    conv.lin_edge = torch.nn.Sequential(torch.nn.Linear(3, 12), torch.nn.Tanh())
    assert went(conv, x, edge_index, edge_attr) == [FUSED[name]]


# What the patch puts into the classes


def test_the_forward_passes_for_pygs():
    theirs = gnn.GATConv.forward
    with onehop.patch():
        ours = gnn.GATConv.forward
        assert ours is not theirs
        assert (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)
        assert "torch_geometric.nn.conv.gat_conv.GATConv.forward" in onehop.patched()
    assert gnn.GATConv.forward is theirs


def test_the_rendered_edge_updater_keeps_its_name():
    gnn.GATConv(WIDTH, 4)
    theirs = gnn.GATConv.edge_updater
    with onehop.patch():
        ours = gnn.GATConv.edge_updater
        assert ours is not theirs
        assert ours.__module__ == theirs.__module__
        gnn.GATConv(WIDTH, 4)
        assert gnn.GATConv.edge_updater is ours
    assert gnn.GATConv.edge_updater is theirs


def test_wrappers_held_somewhere_are_harmless_without_the_patch(x, edge_index):
    conv = gnn.GATConv(WIDTH, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        forward = gnn.GATConv.forward
    assert_same(forward(conv, x, edge_index), expected, **SINGLE)


def test_parameters_of_another_dtype_are_left_to_pyg(edge_index):
    conv, x = gnn.AGNNConv().double(), torch.randn(20, 8)
    refused(lambda: conv(x, edge_index), "its features and parameters differ in dtype")
