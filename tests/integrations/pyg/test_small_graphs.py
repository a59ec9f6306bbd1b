"""Graphs that are too small to pay: PyG's own steps run, by the sizes alone and so every time."""

import logging

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations.pyg.conditions import TOO_SMALL
from onehop.machines import pim
from tests.integrations.pyg.adjacencies import WARNINGS, matrix

NODES, EDGES, WIDTH = 20, 90, 8
LAYERS = {
    "weighted GCN": lambda: gnn.GCNConv(WIDTH, WIDTH, improved=True),
    "SAGE": lambda: gnn.SAGEConv(WIDTH, 4),
    "GraphConv": lambda: gnn.GraphConv(WIDTH, 4),
    "GIN": lambda: gnn.GINConv(torch.nn.Linear(WIDTH, WIDTH)),
    "SG": lambda: gnn.SGConv(WIDTH, 4),
    "GAT": lambda: gnn.GATConv(WIDTH, 4, heads=2),
    "GATv2": lambda: gnn.GATv2Conv(WIDTH, 4, heads=2),
    "Transformer": lambda: gnn.TransformerConv(WIDTH, 4, heads=2),
}


@pytest.fixture(autouse=True)
def bounds_of_users(monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    assert thresholds.ORDINARY.few_edges > EDGES
    onehop.clear_cache()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", LAYERS)
def test_every_call_gives_the_bits_of_pyg_and_keeps_nothing(kind, x, edge_index, took_fast_path):
    torch.manual_seed(0)
    layer = LAYERS[kind]().eval()
    expected = layer(x, edge_index)
    with onehop.patch():
        for _ in range(4):
            assert torch.equal(layer(x, edge_index), expected)
            assert set(took_fast_path(layer, x, edge_index)) == {None}
    assert onehop.cache_info().entries == 0


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("change", ["edges", "width", "bounds"])
def test_more_edges_wide_features_and_lifted_bounds_take_the_fast_path(
    kind, change, x, edge_index, took_fast_path, monkeypatch
):
    layer = LAYERS[kind]()
    if change == "edges":
        edge_index = edge_index.repeat(1, 2 * thresholds.ORDINARY.few_edges // EDGES)
    elif change == "width":
        monkeypatch.setattr(thresholds, "now", thresholds.Thresholds(few_work=EDGES))
    else:
        monkeypatch.setattr(thresholds, "now", thresholds.NONE)
    expected = layer(x, edge_index)
    with onehop.patch():
        assert set(took_fast_path(layer, x, edge_index)) == {None}
        torch.testing.assert_close(layer(x, edge_index), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
def test_checkpointing_goes_the_same_way_twice(kind, x, edge_index, took_fast_path):
    layer, probe = LAYERS[kind](), x.clone().requires_grad_()

    def step() -> None:
        checkpoint(layer, probe, edge_index, use_reentrant=False).sum().backward()

    with onehop.patch():
        for _ in range(3):
            assert set(took_fast_path(step)) == {None}


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_gcn_pays_at_any_size(add_self_loops, flow, x, edge_index, took_fast_path):
    edge_index = torch.cat([edge_index, torch.tensor([[3, 3, 5], [3, 3, 5]])], dim=1)
    layer = gnn.GCNConv(WIDTH, WIDTH, add_self_loops=add_self_loops, flow=flow)
    expected = layer(x, edge_index)
    with onehop.patch():
        first = layer(x, edge_index)
        assert took_fast_path(layer, x, edge_index) == [None]
        torch.testing.assert_close(first, expected)
        assert torch.equal(layer(x, edge_index), first)
        # Only the graph: no edges with loops, no weights.
        assert onehop.cache_info().entries == 1


@pytest.mark.parametrize("add_self_loops", [True, False])
def test_gcn_first_met_in_inference_mode_trains_afterwards(add_self_loops, x, edge_index):
    layer = gnn.GCNConv(WIDTH, WIDTH, add_self_loops=add_self_loops)
    leaf = x.clone().requires_grad_()
    layer(leaf, edge_index).sum().backward()
    expected, leaf.grad = leaf.grad, None
    with onehop.patch():
        with torch.inference_mode():
            layer(x, edge_index)
        layer(leaf, edge_index).sum().backward()
    torch.testing.assert_close(leaf.grad, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gcn_leaves_degrees_that_16_bits_cannot_count_to_pyg(dtype, x, edge_index, took_fast_path):
    layer = gnn.GCNConv(WIDTH, WIDTH).to(dtype)
    expected = layer(x.to(dtype), edge_index)
    with onehop.patch():
        assert took_fast_path(layer, x.to(dtype), edge_index) == [None]
        assert onehop.cache_info().entries == 0
        assert torch.equal(layer(x.to(dtype), edge_index), expected)


def test_gcn_leaves_nodes_out_of_range_to_pyg(x, edge_index):
    layer, wrong = gnn.GCNConv(WIDTH, WIDTH), edge_index.clone()
    wrong[1, 4] = NODES
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        layer(x, wrong)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        layer(x, wrong)
    assert str(ours.value) == str(theirs.value)


def test_wide_features_of_few_edges_are_normalised_once(edge_index, took_fast_path):
    wide = torch.randn(NODES, 2048)
    layer = gnn.GCNConv(2048, 2048)
    expected = layer(wide, edge_index)
    with onehop.patch():
        for _ in range(3):
            assert took_fast_path(layer, wide, edge_index) == [None]
            torch.testing.assert_close(layer(wide, edge_index), expected, rtol=1e-4, atol=1e-4)
        known = onehop.cache_info().entries
        layer(wide, edge_index)
        assert onehop.cache_info().entries == known > 0


def test_a_machine_gets_small_graphs_too(x, edge_index):
    with onehop.patch(machine=pim.Machine()) as handle:
        gnn.SAGEConv(WIDTH, 4)(x, edge_index)
        assert "SAGEConv 1" in str(handle.report)


@pytest.mark.filterwarnings(*WARNINGS)
def test_a_small_matrix_is_left_to_pyg_with_one_line_in_the_log(x, at, took_fast_path, caplog):
    layer, entries = gnn.GATConv(WIDTH, 4), matrix("coo", at, torch.ones(at.size(1)), (NODES, NODES))
    expected = layer(x, entries)
    with onehop.patch():
        with caplog.at_level(logging.INFO, logger="onehop"):
            for _ in range(2):
                assert torch.equal(layer(x, entries), expected)
        assert took_fast_path(layer, x, entries) == [TOO_SMALL]
    assert [TOO_SMALL in record.message for record in caplog.records if record.name == "onehop"] == [True]


SUMS = {
    "sum": lambda **options: gnn.SimpleConv("sum", **options),
    "mean": lambda **options: gnn.SimpleConv("mean", **options),
    "difference": lambda **options: gnn.LEConv(WIDTH, 3, **options),
    "chebyshev": lambda **options: gnn.ChebConv(WIDTH, 3, K=3, **options),
    "normalised": lambda **options: gnn.SSGConv(WIDTH, 3, alpha=0.1, K=2, **options),
    "max": lambda **options: gnn.SimpleConv("max", **options),
    "min": lambda **options: gnn.SimpleConv("min", **options),
    "stacks": lambda **options: gnn.ARMAConv(WIDTH, 3, num_stacks=2, **options),
}


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", SUMS)
def test_sums_and_their_gradients_have_the_bits_of_pyg(kind, weighted, flow, x, edge_index, took_fast_path):
    torch.manual_seed(0)
    layer, leaf = SUMS[kind](flow=flow), x.clone().requires_grad_()
    weight = torch.rand(EDGES).requires_grad_() if weighted else None
    leaves = [each for each in (leaf, weight, *layer.parameters()) if each is not None]

    def passed() -> list[Tensor | None]:
        out = layer(leaf, edge_index, weight)
        return [out, *torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)]

    expected = passed()
    with onehop.patch():
        assert set(took_fast_path(passed)) == {None}
        for ours, theirs in zip(passed(), expected, strict=True):
            assert (ours is None) == (theirs is None)
            assert ours is None or torch.equal(ours, theirs)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("rows", [None, 30])
def test_destinations_of_their_own(aggr, rows, x, edge_index, took_fast_path):
    layer = gnn.SAGEConv((WIDTH, WIDTH), 4, aggr=aggr)
    pair = (x, None if rows is None else torch.randn(rows, WIDTH))
    size = (NODES, 30)
    expected = layer(pair, edge_index, size)
    with onehop.patch():
        assert took_fast_path(layer, pair, edge_index, size) == [None]
        assert torch.equal(layer(pair, edge_index, size), expected)


def test_explain_says_that_no_graph_is_made(x, edge_index):
    assert "no graph is made" in str(onehop.explain(LAYERS["SAGE"](), x, edge_index, verbose=True))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("wrong", ["source", "target", "negative", "rows"])
@pytest.mark.parametrize("kind", ["sum", "mean", "difference"])
def test_errors_are_those_of_pyg(kind, wrong, dtype, x, edge_index):
    layer, edges = SUMS[kind](), edge_index.to(dtype)
    if wrong == "rows":
        edges = edges[:1]
    else:
        edges[int(wrong == "target"), 7] = -1 if wrong == "negative" else NODES
    with pytest.raises((IndexError, RuntimeError, ValueError)) as theirs:
        layer(x, edges)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        layer(x, edges)
    assert str(ours.value) == str(theirs.value)


ATTENTION = {
    "GAT": lambda **options: gnn.GATConv(WIDTH, 4, heads=2, dropout=0.5, edge_dim=3, **options),
    "GATv2": lambda **options: gnn.GATv2Conv(WIDTH, 4, heads=2, dropout=0.5, edge_dim=3, **options),
    "Transformer": lambda **options: gnn.TransformerConv(
        WIDTH, 4, heads=2, dropout=0.5, edge_dim=3, **options
    ),
    "AGNN": lambda **options: WithoutFeatures(gnn.AGNNConv(**options)),
    "SuperGAT": lambda **options: WithoutFeatures(gnn.SuperGATConv(WIDTH, 4, dropout=0.5, **options)),
    "FA": lambda **options: WithInput(gnn.FAConv(WIDTH, dropout=0.5, **options)),
}


class WithoutFeatures(torch.nn.Module):
    """A layer that takes no features of edges."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor, features: Tensor) -> Tensor:
        return self.layer(x, edge_index)


class WithInput(WithoutFeatures):
    """One that takes the model's input too."""

    def forward(self, x: Tensor, edge_index: Tensor, features: Tensor) -> Tensor:
        return self.layer(x, x, edge_index)


@pytest.mark.parametrize("aggr", ["sum", "max"])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("kind", ATTENTION)
def test_attention_and_its_gradients_have_the_bits_of_pyg(kind, flow, aggr, x, edge_index, took_fast_path):
    torch.manual_seed(0)
    layer, leaf, features = (
        ATTENTION[kind](flow=flow, aggr=aggr),
        x.clone().requires_grad_(),
        torch.randn(EDGES, 3),
    )
    leaves = [leaf, *layer.parameters()]

    def passed() -> list[Tensor | None]:
        torch.manual_seed(1)
        out = layer(leaf, edge_index, features)
        gradients = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
        return [out, *gradients, torch.rand(3)]

    expected = passed()
    with onehop.patch():
        assert took_fast_path(passed) == [None]
        for ours, theirs in zip(passed(), expected, strict=True):
            assert (ours is None) == (theirs is None)
            assert ours is None or torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", ["GAT", "GATv2", "Transformer"])
def test_weights_of_attention_are_returned(kind, x, edge_index, took_fast_path):
    layer = LAYERS[kind]()
    expected = layer(x, edge_index, return_attention_weights=True)
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index, return_attention_weights=True) == [None]
        torch.testing.assert_close(
            layer(x, edge_index, return_attention_weights=True), expected, rtol=0, atol=0
        )


@pytest.mark.parametrize("wrong", ["source", "target", "negative"])
@pytest.mark.parametrize("kind", ["GATv2", "Transformer", "AGNN"])
def test_errors_of_attention_are_those_of_pyg(kind, wrong, x, edge_index):
    layer = (LAYERS.get(kind) or gnn.AGNNConv)()
    edge_index[int(wrong == "target"), 7] = -1 if wrong == "negative" else NODES
    with pytest.raises((IndexError, RuntimeError, ValueError)) as theirs:
        layer(x, edge_index)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        layer(x, edge_index)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("size", [(NODES, 30), (30, None), (NODES,)])
def test_sizes_that_do_not_fit_are_reported_by_pyg(size, x, edge_index):
    layer, pair = gnn.SAGEConv(WIDTH, 4), (x, torch.randn(25, WIDTH))
    with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError)) as theirs:
        layer(pair, edge_index, size)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        layer(pair, edge_index, size)
    assert str(ours.value) == str(theirs.value)


def test_targets_without_features_are_counted_by_pyg(edge_index, x):
    layer = gnn.SAGEConv((WIDTH, WIDTH), 4, root_weight=False, flow="target_to_source")
    expected = layer((x, None), edge_index)
    with onehop.patch():
        assert torch.equal(layer((x, None), edge_index), expected)


@pytest.mark.parametrize("kind", ["SAGE", "GAT"])
def test_hooks_are_called(kind, x, edge_index):
    layer, seen = LAYERS[kind](), []
    layer.register_message_forward_hook(lambda *_: seen.append(kind))
    with onehop.patch():
        layer(x, edge_index)
    assert seen == [kind]


@pytest.mark.parametrize("kind", ["SAGE", "GAT"])
def test_a_message_that_is_replaced_later_is_noticed(kind, x, edge_index, monkeypatch):
    layer = LAYERS[kind]()
    with onehop.patch():
        before = layer(x, edge_index)
        monkeypatch.setattr(type(layer), "message", lambda self, x_j, alpha=None: 0 * x_j)
        assert not torch.equal(layer(x, edge_index), before)


@pytest.mark.parametrize("case", ["three dimensions", "int32"])
def test_unusual_operands_have_the_result_of_pyg(case, x, edge_index):
    layer = gnn.SimpleConv("max" if case == "int32" else "mean")
    x = torch.stack([x, 2 * x]) if case == "three dimensions" else x
    edge_index = edge_index.int() if case == "int32" else edge_index
    try:
        expected: Tensor | str = layer(x, edge_index)
    except RuntimeError as error:
        expected = str(error)
    with onehop.patch():
        if isinstance(expected, str):
            with pytest.raises(RuntimeError) as ours:
                layer(x, edge_index)
            assert str(ours.value) == expected
        else:
            assert torch.equal(layer(x, edge_index), expected)
