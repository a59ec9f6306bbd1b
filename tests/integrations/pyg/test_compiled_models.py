"""Compiled and exported models: what is reported of them, what changes them, and what cached layers keep."""

import copy
import logging

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.data import Data

import onehop
from tests.integrations.pyg.test_compile import (
    EDGES,
    LAYERS,
    NODES,
    _fresh_compiler as _fresh_compiler,
    has_ours,
    make,
    pytestmark as pytestmark,
    step,
    x as x,
)
from tests.integrations.same import assert_same


def test_what_is_left_to_pyg_is_in_the_log(x, edge_index, caplog):
    layer = make(lambda: gnn.ResGatedGraphConv(6, 4))
    expected = step(layer, layer, x, edge_index)
    with onehop.patch(), caplog.at_level(logging.INFO, logger="onehop"):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert_same(step(compiled, layer, x, edge_index), expected)
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 1
    assert "ResGatedGraphConv runs its framework's own code" in lines[0]
    assert "no blocks run in compiled programs" in lines[0]


def test_attention_weights_that_are_asked_for_are_pygs(x, edge_index, caplog):
    layer = make(lambda: gnn.TransformerConv(6, 4))
    expected = layer(x, edge_index, return_attention_weights=True)[1][1]
    with onehop.patch(), caplog.at_level(logging.INFO, logger="onehop"):
        compiled = torch.compile(layer, backend="aot_eager")
        found = compiled(x, edge_index, return_attention_weights=True)[1][1]
    torch.testing.assert_close(found, expected)
    assert ["attention weights are returned" in each.getMessage() for each in caplog.records] == [True]


CHANGES = {
    "aggregation": lambda layer: setattr(layer, "aggr_module", gnn.aggr.MaxAggregation()),
    "override": lambda layer: setattr(layer, "message", lambda x_j: x_j + 1),
    "override of the aggregation": lambda layer: setattr(
        layer.aggr_module, "forward", lambda x, *_, dim_size, **__: x.new_ones(dim_size, x.size(1))
    ),
    "override of the scores": lambda layer: setattr(
        layer, "edge_update", lambda alpha_j, **_: torch.ones_like(alpha_j)
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_is_changed_is_compiled_anew(change, x, edge_index):
    layer = make(LAYERS["GAT" if change == "override of the scores" else "GIN"])
    with onehop.patch(), torch.no_grad():
        compiled = torch.compile(layer, backend="aot_eager")
        before = compiled(x, edge_index)
    CHANGES[change](layer)
    with onehop.patch(), torch.no_grad():
        found = compiled(x, edge_index)
    expected = layer(x, edge_index)
    assert not torch.equal(before, expected)
    torch.testing.assert_close(found, expected)


def test_operands_that_the_rule_refuses_are_left_to_pyg(x, edge_index, caplog):
    layer = make(lambda: gnn.GATConv(6, 4, edge_dim=3, add_self_loops=False))
    features = torch.randn(EDGES, 3)
    layer.lin_edge.float()
    expected = layer(x, edge_index, features)
    with onehop.patch(), caplog.at_level(logging.INFO, logger="onehop"):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        found = compiled(x, edge_index, features)
    torch.testing.assert_close(found, expected)
    assert "of another dtype than the nodes'" in caplog.text


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.GCNConv(6, 8)
        self.second = gnn.GATConv(8, 4, heads=2)
        self.odd = gnn.ResGatedGraphConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.odd(self.second(self.first(x, edge_index).relu(), edge_index), edge_index)


@pytest.mark.parametrize("way", ["torch.compile", "a part", "module.compile"])
def test_explain_says_what_a_compiled_model_runs(way, x, edge_index):
    model = make(Net)
    if way == "torch.compile":
        compiled = torch.compile(model, backend="aot_eager")
    else:
        compiled = model
        if way == "a part":
            model.first = torch.compile(model.first, backend="aot_eager")
        else:
            model.first.compile(backend="aot_eager")
    rows = {row.name: row for row in onehop.explain(compiled, x, edge_index).layers}
    assert list(rows) == ["first", "second", "odd"]
    assert rows["first"].plan == "in a compiled program"
    assert rows["first"].form == "scaled source, scaled destination"
    whole = way == "torch.compile"
    assert (rows["second"].plan == "in a compiled program") is whole
    assert ("no blocks run in compiled programs" in (rows["odd"].reason or "")) is whole


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_run_on_other_graphs(strict, x, edge_index, edges):
    model = make(
        lambda: gnn.Sequential("x, e", [(gnn.GCNConv(6, 8), "x, e -> x"), (gnn.GATConv(8, 4), "x, e -> x")])
    )
    nodes, number = torch.export.Dim("nodes", min=4), torch.export.Dim("edges", min=4)
    with onehop.patch():
        program = torch.export.export(
            model, (x, edge_index), dynamic_shapes=({0: nodes}, {1: number}), strict=strict
        )
    operators = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert has_ours(operators)
    other, given = torch.randn(31, 6, dtype=torch.float64), edges(31, 31, 77)
    torch.testing.assert_close(program.module()(other, given), model(other, given))


@pytest.mark.parametrize("name", ["SAGE", "GCN", "GCN, no loops", "GATv2"])
def test_what_does_not_fit_raises(name, x, edge_index):
    layer = make(LAYERS[name])
    edge_index[0, 0] = NODES
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        with pytest.raises(onehop.errors.IndexRangeError, match="edge_index"):
            compiled(x, edge_index)


def test_data_objects(x, edge_index):
    layer = make(LAYERS["GCN"])
    data = Data(x=x, edge_index=edge_index)
    expected = layer(x, edge_index)
    with onehop.patch():
        compiled = torch.compile(lambda data: layer(data.x, data.edge_index), backend="aot_eager")
        torch.testing.assert_close(compiled(data), expected)


class _TwoCached(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.first, self.second = (gnn.GCNConv(6, 6, cached=True, **options) for _ in range(2))

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize(
    "options", [{}, {"improved": True}, {"add_self_loops": False}, {"flow": "target_to_source"}], ids=str
)
def test_cached_layers_keep_the_edges_of_their_first_call_in_one_program(options):
    model, x = _TwoCached(**options), torch.randn(30, 6)
    edges, others = torch.randint(30, (2, 200)), torch.randint(30, (2, 150))
    theirs = copy.deepcopy(model)
    expected = [theirs(x, edges), theirs(x, others)]
    expected[0].square().sum().backward()
    with onehop.patch():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        found = [compiled(x, edges), compiled(x, others)]
        found[0].square().sum().backward()
    torch.testing.assert_close(found, expected)
    for ours, pyg in zip(model.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, pyg.grad, rtol=1e-4, atol=1e-4)
    for kept, wanted in zip(model.first._cached_edge_index, theirs.first._cached_edge_index, strict=True):
        torch.testing.assert_close(kept, wanted)


@torch.no_grad()
def test_edges_that_a_layer_holds_are_used_whatever_it_says_now(x, edge_index):
    layer = make(lambda: gnn.GCNConv(6, 4, cached=True))
    layer(x, edge_index)
    layer.cached = False
    expected = layer(x, edge_index.flip(0))
    with onehop.patch():
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x, edge_index.flip(0)), expected)


@torch.no_grad()
def test_an_empty_cache_is_told_of_where_it_ends_a_program(caplog):
    model, x, edges = _TwoCached(), torch.randn(30, 6), torch.randint(30, (2, 200))
    with onehop.patch(), caplog.at_level("INFO", logger="onehop"):
        found = torch.compile(model, backend="aot_eager")(x, edges)
    assert "call the model once before it is compiled" in caplog.text
    torch.testing.assert_close(found, copy.deepcopy(model)(x, edges))
