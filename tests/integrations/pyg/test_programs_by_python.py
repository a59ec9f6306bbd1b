"""Layers as they are traced into programs, run by Python instead: the same numbers, and who is refused."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

import onehop
from onehop.integrations import reports
from onehop.ops.contexts import as_in_program
from tests.integrations.pyg.test_compile import LAYERS

NODES, EDGES = 20, 90


@pytest.fixture
def edge_index():
    found = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(3))
    found[0, ::7] = found[1, ::7]  # self loops, of some nodes several
    return found


def _randn(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _make(layer):
    torch.manual_seed(0)
    return layer().double()


def _step(model, operands, named):
    """The output and all gradients, or the error."""
    model = copy.deepcopy(model)
    leaves = [_leaf(each) for each in operands]
    named = {name: _leaf(each) for name, each in named.items()}
    torch.manual_seed(5)
    try:
        out = model(*leaves, **named)
    except (ValueError, RuntimeError, AssertionError, IndexError, TypeError, AttributeError) as error:
        return type(error)
    out = out[0] if isinstance(out, tuple) else out
    (out * _randn(*out.shape, seed=7).to(out.dtype)).sum().backward()
    tensors = [*_flat(leaves), *named.values(), *model.parameters()]
    return [out.detach(), *(each.grad for each in tensors if isinstance(each, torch.Tensor))]


def _leaf(each):
    if isinstance(each, tuple):
        return tuple(map(_leaf, each))
    if isinstance(each, torch.Tensor) and each.is_floating_point():
        return each.detach().clone().requires_grad_()
    return each


def _flat(values):
    for each in values:
        yield from _flat(each) if isinstance(each, tuple) else (each,)


def _both_ways(model, *operands, **named):
    """What PyG and the patch make of a call, and what the patch reports."""
    expected = _step(model, operands, named)
    with onehop.patch(), as_in_program(), reports.recorded() as calls:
        found = _step(model, operands, named)
    return expected, found, calls


def _assert_same(found, expected):
    if isinstance(expected, type):
        assert found is expected
        return
    assert not isinstance(found, type)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def _runs_ours(model, *operands, **named):
    expected, found, calls = _both_ways(model, *operands, **named)
    assert not isinstance(expected, type)
    _assert_same(found, expected)
    assert calls
    assert [call.reason for call in calls] == [None] * len(calls)
    return calls


def _refuses(sentence, model, *operands, **named):
    expected, found, calls = _both_ways(model, *operands, **named)
    _assert_same(found, expected)
    assert sentence in {call.reason for call in calls}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, edge_index):
    _runs_ours(_make(LAYERS[name]), _randn(NODES, 6), edge_index)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("improved", [True, False])
@pytest.mark.parametrize("width", [4, 30])
def test_weights_of_gcn(edge_index, loops, improved, width):
    model = _make(lambda: gnn.GCNConv(6, width, improved=improved and loops, add_self_loops=loops))
    _runs_ours(model, _randn(NODES, 6), edge_index, edge_weight=_randn(EDGES).abs() + 0.1)
    # Without a gradient, one operator may do both steps.
    weight = (_randn(EDGES).abs() + 0.1).requires_grad_(False)
    x = _randn(NODES, 6)
    expected = model(x, edge_index, weight)
    with onehop.patch(), as_in_program():
        torch.testing.assert_close(model(x, edge_index, weight), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("width", [4, 30])
def test_weights_of_graph_conv(edge_index, aggr, width):
    model = _make(lambda: gnn.GraphConv(6, width, aggr=aggr))
    (call, *_) = _runs_ours(model, _randn(NODES, 6), edge_index, edge_weight=_randn(EDGES))
    assert (call.form, call.reduce) == ("source * weight", aggr)
    (call, *_) = _runs_ours(model, _randn(NODES, 6), edge_index)
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
    x, features = _randn(NODES, 6), _randn(EDGES, 3)
    _runs_ours(_make(make_layer), x, edge_index, edge_attr=features)
    if "Transformer" in repr(make_layer()):
        return
    for more in ({"fill_value": 0.5}, {"fill_value": 2}, {"add_self_loops": False}):
        _runs_ours(_make(lambda more=more: make_layer(**more)), x, edge_index, edge_attr=features)
    model = _make(lambda: make_layer(fill_value="max"))
    _refuses(
        "it is in a compiled program, and its self loops are filled by 'max'",
        model,
        x,
        edge_index,
        edge_attr=features,
    )
    # PyG takes one number an edge for a column.
    kind = type(model)
    _runs_ours(_make(lambda: kind(6, 4, edge_dim=1)), x, edge_index, edge_attr=_randn(EDGES))


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
    _runs_ours(_make(make_layer), (_randn(NODES, 6), _randn(12, 5)), edges)


def test_more_destinations_than_edges_name(edge_index):
    edges = edge_index.clone()
    edges[1] %= 12
    for size in ((NODES, 14), (NODES, None)):
        expected, found, _ = _both_ways(gnn.SimpleConv(), (_randn(NODES, 6), None), edges, size=size)
        _assert_same(found, expected)


@pytest.mark.parametrize("make_layer", [lambda: gnn.SimpleConv(), lambda: gnn.SimpleConv(aggr="max")])
def test_batches(make_layer, edge_index):
    model = make_layer()
    model.node_dim = -2
    _runs_ours(model, _randn(3, NODES, 6), edge_index)
    model.node_dim = 0
    _refuses(
        "node_dim is not the first of two dimensions of its operands",
        model,
        _randn(3, NODES, 6).transpose(0, 1).contiguous(),
        edge_index,
    )


def test_batches_of_gcn(edge_index):
    model = _make(LAYERS["GCN"])
    _runs_ours(model, _randn(3, NODES, 6), edge_index, edge_weight=_randn(EDGES).abs() + 0.1)


def test_given_sizes(edge_index):
    edges = edge_index.clone()
    edges[1] %= 12
    for layer in (gnn.SAGEConv((6, 5), 4), gnn.GraphConv((6, 5), 4)):
        _runs_ours(
            _make(lambda layer=layer: layer), (_randn(NODES, 6), _randn(14, 5)), edges, size=(NODES, 14)
        )


@pytest.mark.parametrize("weight", [_randn(EDGES), _randn(EDGES, 1), None])
def test_weights_of_simple_conv(weight, edge_index):
    _runs_ours(gnn.SimpleConv(), _randn(NODES, 6), edge_index, edge_weight=weight)


def test_dropout_of_attention(edge_index):
    model = _make(lambda: gnn.TransformerConv(6, 4, heads=2, dropout=0.4))
    _runs_ours(model, _randn(NODES, 6), edge_index)
    _runs_ours(model.eval(), _randn(NODES, 6), edge_index)


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
    model = _make(lambda: gnn.GINConv(nn.Linear(6, 4)) if kind is gnn.GINConv else kind(6, 4))
    HOOKS[name](model, lambda *_: None)
    _refuses("message passing hooks are registered on it", model, _randn(NODES, 6), edge_index)


@pytest.mark.parametrize(
    "name", ["register_edge_update_forward_pre_hook", "register_edge_update_forward_hook"]
)
def test_hooks_on_scores(name, edge_index):
    model = _make(LAYERS["GAT"])
    getattr(model, name)(lambda *_: None)
    _refuses("message passing hooks are registered on it", model, _randn(NODES, 6), edge_index)


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
    model = _make(lambda: gnn.GATConv(6, 4, edge_dim=3))
    getattr(getattr(model, part), name)(lambda *_: None)
    sentence = "hooks are registered on " + (
        "its aggregation module" if part == "aggr_module" else "a module in it"
    )
    _refuses(sentence, model, _randn(NODES, 6), edge_index, edge_attr=_randn(EDGES, 3))


@pytest.mark.parametrize("name", ["message", "aggregate", "update", "collect", "edge_update", "edge_updater"])
def test_functions_of_an_instance(name, edge_index):
    model = _make(LAYERS["GAT"])
    theirs = getattr(model, name)
    with onehop.patch(), as_in_program(), reports.recorded() as calls:
        setattr(model, name, lambda *args, **kwargs: theirs(*args, **kwargs))
        model(_randn(NODES, 6), edge_index)
    told = "edge_update" if name == "edge_updater" else name
    assert f"this instance overrides {told}" in {call.reason for call in calls}


@pytest.mark.parametrize("of", ["class", "instance"])
@pytest.mark.parametrize("name", ["GCN", "SAGE", "GAT"])
def test_a_propagate_of_ones_own(name, of, edge_index):
    model = _make(LAYERS[name])

    def propagate(*args, **kwargs):
        assert isinstance(args[-1], torch.Tensor)
        x = kwargs["x"]
        return 3 * (x if name == "GCN" else x[0])

    if of == "class":
        model.__class__ = type("Own", (type(model),), {"propagate": propagate})
    else:
        model.propagate = propagate
    x = _randn(NODES, 6)
    expected = model(x, edge_index)
    with onehop.patch(), as_in_program():
        torch.testing.assert_close(model(x, edge_index), expected)


def test_edge_features_of_another_dtype(edge_index):
    model = _make(lambda: gnn.GATConv(6, 4, edge_dim=3))
    model.lin_edge.float()
    _refuses(
        "the edge features are of another dtype than the nodes'",
        model,
        _randn(NODES, 6),
        edge_index,
        edge_attr=_randn(EDGES, 3).float(),
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
    model = _make(make_layer)
    change(model)
    with onehop.patch(), as_in_program(), reports.recorded() as calls:
        _step(model, (_randn(NODES, 6), edge_index), {})
    assert sentence in {call.reason for call in calls}


MISFITS = {
    "no edge features for those expected": (gnn.TransformerConv(6, 4, edge_dim=3), {}),
    "edge features that nobody expects": (gnn.TransformerConv(6, 4), {"edge_attr": _randn(EDGES, 3)}),
    "too few edge features": (gnn.GATv2Conv(6, 4, edge_dim=3), {"edge_attr": _randn(EDGES - 1, 3)}),
    "a number an edge for a transformer": (
        gnn.TransformerConv(6, 4, edge_dim=1),
        {"edge_attr": _randn(EDGES)},
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_pyg_reports_what_does_not_fit(name, edge_index):
    model, named = MISFITS[name]
    _refuses("PyG is left to report what does not fit", model.double(), _randn(NODES, 6), edge_index, **named)


def test_features_that_gat_leaves_unread(edge_index):
    _runs_ours(_make(LAYERS["GAT"]), _randn(NODES, 6), edge_index)
    _, found, calls = _both_ways(
        _make(LAYERS["GAT"]), _randn(NODES, 6), edge_index, edge_attr=_randn(EDGES, 3)
    )
    assert not isinstance(found, type)
    assert [call.reason for call in calls] == [None]


def test_attention_weights_that_are_asked_for(edge_index):
    model = _make(LAYERS["GAT"])
    for asked in (True, False):
        _refuses(
            "it is in a compiled program, and its attention weights are returned",
            model,
            _randn(NODES, 6),
            edge_index,
            return_attention_weights=asked,
        )


def test_autocast_decides(edge_index):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _refuses(
            "autocast decides on the dtypes of its scores",
            gnn.GATConv(6, 4),
            _randn(NODES, 6).float(),
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
    _refuses("PyG is left to report what does not fit", _make(LAYERS["GIN"]), _randn(NODES, 6), edges)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_sparse_matrices_are_left_to_pyg():
    _refuses(
        "edge_index is a sparse matrix, for which PyG has its own code",
        _make(LAYERS["GIN"]),
        _randn(NODES, 6),
        torch.eye(NODES, dtype=torch.float64).to_sparse_csr(),
    )


def test_integers_are_left_to_pyg(edge_index):
    with onehop.patch(), as_in_program(), reports.recorded() as calls:
        found = gnn.SimpleConv()(torch.arange(NODES * 2).view(NODES, 2), edge_index)
    assert found.dtype is torch.int64
    assert "the features are not floating-point numbers of 16, 32 or 64 bits" in {c.reason for c in calls}


@pytest.mark.parametrize("width", [4, 30])
@pytest.mark.parametrize("kind", [gnn.GCNConv, gnn.SAGEConv, gnn.GraphConv])
def test_orders_are_the_layers_own_where_something_is_infinite(kind, width, edge_index):
    model = _make(lambda: kind(6, width))
    x = _randn(NODES, 6)
    x[3, 2] = float("inf")
    expected = model(x, edge_index)
    with onehop.patch(), as_in_program():
        found = model(x, edge_index)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, equal_nan=True)
