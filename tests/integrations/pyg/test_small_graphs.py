"""Graphs that are too small to pay: no graph is made, by the sizes alone and so every time."""

import logging
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations.pyg.leave import TOO_SMALL
from onehop.integrations.rows import stand_in
from onehop.machines import pim
from tests.integrations.pyg.adjacencies import WARNINGS, matrix
from tests.integrations.same import BITS, HALF, SINGLE, fast, learned, refused, same_error

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

# PyG's operators run for their sums if gradients are recorded.
RECORDED = ("GraphConv", "GIN")

# Nothing serves their messages over few edges.
OTHERS = {
    "AGNN": lambda: gnn.AGNNConv(),
    "LE": lambda: gnn.LEConv(WIDTH, 4),
    "Edge": lambda: gnn.EdgeConv(torch.nn.Linear(2 * WIDTH, 4)),
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
def test_every_call_gives_the_same_bits_and_keeps_nothing(kind, x, edge_index):
    layer, probe = LAYERS[kind](), x.clone().requires_grad_()
    fast(lambda: layer(x, edge_index), times=4, **SINGLE)

    # The second pass of a checkpoint goes the same way.
    def train() -> list[Any]:
        return learned(checkpoint(layer, probe, edge_index, use_reentrant=False), probe)

    if kind in RECORDED:
        refused(train, TOO_SMALL, **SINGLE)
    else:
        fast(train, **SINGLE)
    with onehop.patch():
        first = layer(x, edge_index)
        assert all(torch.equal(layer(x, edge_index), first) for _ in range(3))
    assert onehop.cache_info().entries == 0


@pytest.mark.parametrize("kind", OTHERS)
def test_every_call_of_others_gives_the_numbers_of_pyg_and_keeps_nothing(kind, x, edge_index):
    layer, probe = OTHERS[kind](), x.clone().requires_grad_()
    refused(lambda: layer(x, edge_index), TOO_SMALL, times=4, **SINGLE)
    assert onehop.cache_info().entries == 0
    refused(
        lambda: learned(checkpoint(layer, probe, edge_index, use_reentrant=False), probe), TOO_SMALL, **SINGLE
    )
    with onehop.patch():
        assert TOO_SMALL in str(onehop.explain(layer, x, edge_index, verbose=True))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("change", ["edges", "width", "bounds"])
def test_more_edges_wide_features_and_lifted_bounds_take_the_fast_path(
    kind, change, x, edge_index, monkeypatch
):
    layer = LAYERS[kind]()
    if change == "edges":
        edge_index = edge_index.repeat(1, 2 * thresholds.ORDINARY.few_edges // EDGES)
    elif change == "width":
        monkeypatch.setattr(thresholds, "now", thresholds.Thresholds(few_work=EDGES, listed_work=EDGES))
    else:
        monkeypatch.setattr(thresholds, "now", thresholds.NONE)
    fast(lambda: layer(x, edge_index), rtol=1e-5, atol=1e-5)


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
        assert onehop.cache_info().entries == 0


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
def test_gcn_leaves_degrees_that_16_bits_cannot_count_to_pyg(dtype, x, edge_index):
    layer = gnn.GCNConv(WIDTH, WIDTH).to(dtype)
    refused(lambda: layer(x.to(dtype), edge_index), TOO_SMALL, **BITS)
    assert onehop.cache_info().entries == 0


def test_gcn_leaves_nodes_out_of_range_to_pyg(x, edge_index):
    layer, wrong = gnn.GCNConv(WIDTH, WIDTH), edge_index.clone()
    wrong[1, 4] = NODES
    same_error(lambda: layer(x, wrong))


def test_so_few_edges_need_no_graph_however_wide_their_features_are(edge_index):
    wide, edges = torch.randn(NODES, 2048), thresholds.ORDINARY.few_edges // 8
    layer = gnn.GCNConv(2048, 2048)
    with onehop.patch():
        for count, entries in ((edges - 1, 0), (edges, 1)):
            many = edge_index.repeat(1, edges)[:, :count].clone()
            layer(wide, many)
            assert onehop.cache_info().entries == entries


@pytest.mark.parametrize(("reduce", "pays"), [("sum", False), ("mean", False), ("max", True), ("min", True)])
def test_an_extremum_that_no_list_serves_pays_with_a_quarter_of_the_edges(reduce, pays, x, edge_index):
    edge_index = edge_index.repeat(1, -(-thresholds.ORDINARY.few_edges // (4 * EDGES)))
    layer, x = gnn.GINConv(torch.nn.Linear(WIDTH, 4), aggr=reduce).bfloat16(), x.bfloat16()
    expected = layer(x, edge_index)
    with onehop.patch():
        torch.testing.assert_close(layer(x, edge_index), expected, **HALF)
        assert onehop.cache_info().entries == pays  # a graph


LISTED = {
    "GCN": (NODES, lambda: gnn.GCNConv(WIDTH, WIDTH)),
    "SG": (NODES, lambda: gnn.SGConv(WIDTH, WIDTH, K=2)),
    "SAGE": (0, lambda: gnn.SAGEConv(WIDTH, 4)),
    "GIN, max": (0, lambda: gnn.GINConv(torch.nn.Linear(WIDTH, 4), aggr="max")),
    "Transformer": (0, lambda: gnn.TransformerConv(WIDTH, WIDTH)),
}


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("kind", LISTED)
def test_edges_and_loops_are_a_list_below_the_bound(kind, more, x):
    loops, make = LISTED[kind]
    source = torch.arange(thresholds.ORDINARY.few_edges - loops + more)
    edge_index, layer = torch.stack([source % NODES, (source * 7 + source // NODES + 1) % NODES]), make()
    edge_index[1] += edge_index[0] == edge_index[1]
    edge_index[1] %= NODES
    fast(lambda: layer(x, edge_index), rtol=1e-5, atol=1e-5)
    onehop.clear_cache()
    with onehop.patch():
        layer(x, edge_index)
        assert (onehop.cache_info().entries == 0) == (more < 0)


# The cache forgets the graph of SGConv's looped edges, which live as long as the call.
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("kind", sorted(LISTED.keys() - {"SG"}))
def test_edges_times_width_are_a_list_below_the_bound(kind, more, x, monkeypatch):
    loops, make = LISTED[kind]
    edges = thresholds.ORDINARY.few_edges // 4
    source = torch.arange(edges)
    edge_index, layer = torch.stack([source % NODES, (source + 1) % NODES]), make()
    monkeypatch.setattr(
        thresholds, "now", thresholds.Thresholds(listed_work=(edges + loops) * WIDTH - more, few_work=0)
    )
    fast(lambda: layer(x, edge_index), rtol=1e-5, atol=1e-5)
    onehop.clear_cache()
    with onehop.patch():
        layer(x, edge_index)
        assert (onehop.cache_info().entries == 0) == (more < 0)


@pytest.mark.parametrize("kind", ["GAT", "GATv2"])
def test_added_loops_count_as_edges(kind, edge_index, took_fast_path, monkeypatch):
    nodes = thresholds.ORDINARY.few_edges
    x, layer = torch.randn(nodes, WIDTH), LAYERS[kind]()
    expected = layer(x, edge_index)

    def softmax(*args: object, **kwargs: object) -> None:
        raise AssertionError("PyG's softmax runs before a fused operator.")

    names = vars(sys.modules[type(layer).__module__])
    monkeypatch.setitem(names, "softmax", stand_in(names["softmax"], softmax))  # passes for PyG's
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index) == [None]
        torch.testing.assert_close(layer(x, edge_index), expected)


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
                torch.testing.assert_close(layer(x, entries), expected)
        assert took_fast_path(layer, x, entries) == [TOO_SMALL]
    assert [TOO_SMALL in record.message for record in caplog.records if record.name == "onehop"] == [True]


@pytest.mark.parametrize("kind", ["GAT", "GATv2", "Transformer"])
def test_weights_of_attention_are_returned(kind, x, edge_index):
    layer = LAYERS[kind]()
    refused(lambda: layer(x, edge_index, return_attention_weights=True), TOO_SMALL, **SINGLE)
