"""Layers as they are traced into programs, run by Python instead: the same numbers, and who is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn

import onehop
from onehop.integrations import reports
from onehop.ops.contexts import as_in_program
from tests.integrations.pyg.test_compile import EDGES, LAYERS, NODES, make, numbers
from tests.integrations.same import Raised, assert_same, outcome, reasons, step


@pytest.fixture
def edge_index():
    found = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(3))
    found[0, ::7] = found[1, ::7]  # self loops, of some nodes several
    return found


def both_ways(model: Any, *operands: Any, **named: Any) -> tuple[Any, list[reports.Call]]:
    """Compares what the patch makes of a call, as in a program, with PyG's; also what it reports."""
    run = step(model, *operands, **named)
    torch.manual_seed(5)
    expected = outcome(run)
    with onehop.patch(), as_in_program(), reports.recorded() as calls:
        torch.manual_seed(5)
        found = outcome(run)
    if isinstance(expected, Raised):
        assert found.kind is expected.kind
    else:
        assert_same(found, expected)
    return expected, calls


def runs_ours(model: Any, *operands: Any, **named: Any) -> list[reports.Call]:
    expected, calls = both_ways(model, *operands, **named)
    assert not isinstance(expected, Raised)
    assert calls
    assert set(reasons(calls)) == {None}
    return calls


def refuses(sentence: str, model: Any, *operands: Any, **named: Any) -> None:
    assert sentence in reasons(both_ways(model, *operands, **named)[1])


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, edge_index):
    runs_ours(make(LAYERS[name]), numbers(NODES, 6), edge_index)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("improved", [True, False])
@pytest.mark.parametrize("width", [4, 30])
def test_weights_of_gcn(edge_index, loops, improved, width):
    model = make(lambda: gnn.GCNConv(6, width, improved=improved and loops, add_self_loops=loops))
    runs_ours(model, numbers(NODES, 6), edge_index, edge_weight=numbers(EDGES).abs() + 0.1)
    # Without a gradient, one operator may do both steps.
    weight = (numbers(EDGES).abs() + 0.1).requires_grad_(False)
    x = numbers(NODES, 6)
    expected = model(x, edge_index, weight)
    with onehop.patch(), as_in_program():
        torch.testing.assert_close(model(x, edge_index, weight), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("width", [4, 30])
def test_weights_of_graph_conv(edge_index, aggr, width):
    model = make(lambda: gnn.GraphConv(6, width, aggr=aggr))
    (call, *_) = runs_ours(model, numbers(NODES, 6), edge_index, edge_weight=numbers(EDGES))
    assert (call.form, call.reduce) == ("source * weight", aggr)
    (call, *_) = runs_ours(model, numbers(NODES, 6), edge_index)
    assert call.form == "source"


@pytest.mark.parametrize(
    "make_layer",
    [
        lambda **more: gnn.GATConv(6, 4, heads=2, edge_dim=3, **more),
        lambda **more: gnn.GATv2Conv(6, 4, heads=2, edge_dim=3, **more),
        lambda **more: gnn.TransformerConv(6, 4, heads=2, edge_dim=3, **more),
    ],
    ids=["GAT", "GATv2", "Transformer"],
)
def test_features_of_edges(make_layer, edge_index):
    x, features = numbers(NODES, 6), numbers(EDGES, 3)
    runs_ours(make(make_layer), x, edge_index, edge_attr=features)
    if "Transformer" in repr(make_layer()):
        return
    for more in ({"fill_value": 0.5}, {"fill_value": 2}, {"add_self_loops": False}):
        runs_ours(make(lambda more=more: make_layer(**more)), x, edge_index, edge_attr=features)
    model = make(lambda: make_layer(fill_value="max"))
    refuses(
        "it is in a compiled program, and its self loops are filled by 'max'",
        model,
        x,
        edge_index,
        edge_attr=features,
    )
    # PyG takes one number an edge for a column.
    kind = type(model)
    runs_ours(make(lambda: kind(6, 4, edge_dim=1)), x, edge_index, edge_attr=numbers(EDGES))


@pytest.mark.parametrize(
    "make_layer",
    [
        lambda: gnn.SAGEConv((6, 5), 4),
        lambda: gnn.GraphConv((6, 5), 4),
        lambda: gnn.GATConv((6, 5), 4, add_self_loops=False),
        lambda: gnn.GATv2Conv((6, 5), 4, add_self_loops=False),
        lambda: gnn.TransformerConv((6, 5), 4),
    ],
)
def test_bipartite(make_layer, edge_index):
    edges = edge_index.clone()
    edges[1] %= 12
    runs_ours(make(make_layer), (numbers(NODES, 6), numbers(12, 5)), edges)


def test_more_destinations_than_edges_name(edge_index):
    edges = edge_index.clone()
    edges[1] %= 12
    for size in ((NODES, 14), (NODES, None)):
        both_ways(gnn.SimpleConv(), (numbers(NODES, 6), None), edges, size=size)


@pytest.mark.parametrize("make_layer", [lambda: gnn.SimpleConv(), lambda: gnn.SimpleConv(aggr="max")])
def test_batches(make_layer, edge_index):
    model = make_layer()
    model.node_dim = -2
    runs_ours(model, numbers(3, NODES, 6), edge_index)
    model.node_dim = 0
    refuses(
        "node_dim is not the first of two dimensions of its operands",
        model,
        numbers(3, NODES, 6).transpose(0, 1).contiguous(),
        edge_index,
    )


def test_batches_of_gcn(edge_index):
    model = make(LAYERS["GCN"])
    runs_ours(model, numbers(3, NODES, 6), edge_index, edge_weight=numbers(EDGES).abs() + 0.1)


def test_given_sizes(edge_index):
    edges = edge_index.clone()
    edges[1] %= 12
    for layer in (gnn.SAGEConv((6, 5), 4), gnn.GraphConv((6, 5), 4)):
        runs_ours(
            make(lambda layer=layer: layer), (numbers(NODES, 6), numbers(14, 5)), edges, size=(NODES, 14)
        )


@pytest.mark.parametrize("weight", [numbers(EDGES), numbers(EDGES, 1), None])
def test_weights_of_simple_conv(weight, edge_index):
    runs_ours(gnn.SimpleConv(), numbers(NODES, 6), edge_index, edge_weight=weight)


def test_dropout_of_attention(edge_index):
    model = make(lambda: gnn.TransformerConv(6, 4, heads=2, dropout=0.4))
    runs_ours(model, numbers(NODES, 6), edge_index)
    runs_ours(model.eval(), numbers(NODES, 6), edge_index)


# Refusals


HOOKS = {
    name: getattr(gnn.MessagePassing, f"register_{name}_hook")
    for name in (
        "propagate_forward_pre",
        "propagate_forward",
        "message_forward_pre",
        "message_forward",
        "aggregate_forward_pre",
        "aggregate_forward",
        "message_and_aggregate_forward_pre",
        "message_and_aggregate_forward",
    )
}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("kind", [gnn.GCNConv, gnn.SAGEConv, gnn.GINConv, gnn.TransformerConv])
def test_hooks_on_messages(kind, name, edge_index):
    model = make(lambda: gnn.GINConv(nn.Linear(6, 4)) if kind is gnn.GINConv else kind(6, 4))
    HOOKS[name](model, lambda *_: None)
    refuses("message passing hooks are registered on it", model, numbers(NODES, 6), edge_index)


@pytest.mark.parametrize(
    "name", ["register_edge_update_forward_pre_hook", "register_edge_update_forward_hook"]
)
def test_hooks_on_scores(name, edge_index):
    model = make(LAYERS["GAT"])
    getattr(model, name)(lambda *_: None)
    refuses("message passing hooks are registered on it", model, numbers(NODES, 6), edge_index)


@pytest.mark.parametrize(
    "name",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
@pytest.mark.parametrize("part", ["aggr_module", "lin_edge"])
def test_hooks_on_modules_inside(name, part, edge_index):
    model = make(lambda: gnn.GATConv(6, 4, edge_dim=3))
    getattr(getattr(model, part), name)(lambda *_: None)
    sentence = "hooks are registered on " + (
        "its aggregation module" if part == "aggr_module" else "a module in it"
    )
    refuses(sentence, model, numbers(NODES, 6), edge_index, edge_attr=numbers(EDGES, 3))


@pytest.mark.parametrize("name", ["message", "aggregate", "update", "collect", "edge_update", "edge_updater"])
def test_functions_of_an_instance(name, edge_index):
    model = make(LAYERS["GAT"])
    theirs = getattr(model, name)
    with onehop.patch(), as_in_program(), reports.recorded() as calls:
        setattr(model, name, lambda *args, **kwargs: theirs(*args, **kwargs))
        model(numbers(NODES, 6), edge_index)
    told = "edge_update" if name == "edge_updater" else name
    assert f"this instance overrides {told}" in reasons(calls)


@pytest.mark.parametrize("of", ["class", "instance"])
@pytest.mark.parametrize("name", ["GCN", "SAGE", "GAT"])
def test_a_propagate_of_ones_own(name, of, edge_index):
    model = make(LAYERS[name])

    def propagate(*args, **kwargs):
        assert isinstance(args[-1], Tensor)
        x = kwargs["x"]
        return 3 * (x if name == "GCN" else x[0])

    if of == "class":
        model.__class__ = type("Own", (type(model),), {"propagate": propagate})
    else:
        model.propagate = propagate
    x = numbers(NODES, 6)
    expected = model(x, edge_index)
    with onehop.patch(), as_in_program():
        torch.testing.assert_close(model(x, edge_index), expected)


def test_edge_features_of_another_dtype(edge_index):
    model = make(lambda: gnn.GATConv(6, 4, edge_dim=3))
    model.lin_edge.float()
    refuses(
        "the edge features are of another dtype than the nodes'",
        model,
        numbers(NODES, 6),
        edge_index,
        edge_attr=numbers(EDGES, 3).float(),
    )


def _changed(**attributes):
    def change(model):
        for name, value in attributes.items():
            setattr(model, name, value)

    return change


REFUSED = {
    "GAT, flow": (
        LAYERS["GAT, no loops"],
        _changed(flow="target_to_source"),
        "it is in a compiled program, and flow or node_dim is not as usual",
    ),
    "GAT, mean": (LAYERS["GAT"], _changed(aggr_module=gnn.MeanAggregation()), "its aggregation is not a sum"),
    "SAGE, median": (
        LAYERS["SAGE"],
        _changed(aggr_module=gnn.MedianAggregation()),
        "its aggregation is MedianAggregation, not sum, mean, max or min",
    ),
    "GIN, an explainer": (LAYERS["GIN"], _changed(_explain=True), "an explainer is at work on it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_layers_that_are_set_up_otherwise(name, edge_index):
    make_layer, change, sentence = REFUSED[name]
    model = make(make_layer)
    change(model)
    with onehop.patch(), as_in_program(), reports.recorded() as calls:
        outcome(step(model, numbers(NODES, 6), edge_index))
    assert sentence in reasons(calls)


MISFITS = {
    "no edge features for those expected": (gnn.TransformerConv(6, 4, edge_dim=3), {}),
    "edge features that nobody expects": (gnn.TransformerConv(6, 4), {"edge_attr": numbers(EDGES, 3)}),
    "too few edge features": (gnn.GATv2Conv(6, 4, edge_dim=3), {"edge_attr": numbers(EDGES - 1, 3)}),
    "a number an edge for a transformer": (
        gnn.TransformerConv(6, 4, edge_dim=1),
        {"edge_attr": numbers(EDGES)},
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_pyg_reports_what_does_not_fit(name, edge_index):
    model, named = MISFITS[name]
    refuses("PyG is left to report what does not fit", model.double(), numbers(NODES, 6), edge_index, **named)


def test_features_that_gat_leaves_unread(edge_index):
    runs_ours(make(LAYERS["GAT"]), numbers(NODES, 6), edge_index, edge_attr=numbers(EDGES, 3))


def test_attention_weights_that_are_asked_for(edge_index):
    model = make(LAYERS["GAT"])
    for asked in (True, False):
        refuses(
            "it is in a compiled program, and its attention weights are returned",
            model,
            numbers(NODES, 6),
            edge_index,
            return_attention_weights=asked,
        )


def test_autocast_decides(edge_index):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        refuses(
            "autocast decides on the dtypes of its scores",
            gnn.GATConv(6, 4),
            numbers(NODES, 6).float(),
            edge_index,
        )


@pytest.mark.parametrize(
    "edges",
    [
        torch.zeros(3, 5, dtype=torch.int64),
        torch.zeros(4, dtype=torch.int64),
        torch.zeros(2, 5, dtype=torch.int16),
    ],
)
def test_edges_that_are_left_to_pyg(edges):
    refuses("PyG is left to report what does not fit", make(LAYERS["GIN"]), numbers(NODES, 6), edges)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_sparse_matrices_are_left_to_pyg():
    refuses(
        "edge_index is a sparse matrix, for which PyG has its own code",
        make(LAYERS["GIN"]),
        numbers(NODES, 6),
        torch.eye(NODES, dtype=torch.float64).to_sparse_csr(),
    )


def test_integers_are_left_to_pyg(edge_index):
    with onehop.patch(), as_in_program(), reports.recorded() as calls:
        found = gnn.SimpleConv()(torch.arange(NODES * 2).view(NODES, 2), edge_index)
    assert found.dtype is torch.int64
    assert "the features are not floating-point numbers of 16, 32 or 64 bits" in reasons(calls)


@pytest.mark.parametrize("width", [4, 30])
@pytest.mark.parametrize("kind", [gnn.GCNConv, gnn.SAGEConv, gnn.GraphConv])
def test_orders_are_the_layers_own_where_something_is_infinite(kind, width, edge_index):
    model = make(lambda: kind(6, width))
    x = numbers(NODES, 6)
    x[3, 2] = float("inf")
    expected = model(x, edge_index)
    with onehop.patch(), as_in_program():
        found = model(x, edge_index)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, equal_nan=True)
