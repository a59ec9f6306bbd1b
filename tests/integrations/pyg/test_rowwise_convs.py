"""Layers whose messages run in blocks, patched and unpatched: outputs and all gradients by name."""

import copy
import pickle

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.pyg.layers import (
    DEGREES,
    DIM,
    IN_BLOCKS,
    NODES,
    SCALERS,
    WIDTH,
    Mine,
    case_call,
    operands_of,
    pna,
    rowwise_mlp,
)
from tests.pairs import pairwise

EDGES = 120


@pytest.fixture(autouse=True, params=[False, True], ids=["blocks", "compiled"])
def _blocks(request, monkeypatch):
    small_blocks.force(monkeypatch, compiled=request.param)


AGGREGATIONS: dict[str, object] = {
    "var": "var",
    "std": "std",
    "std semi": gnn.aggr.StdAggregation(semi_grad=True),
    "softmax": "softmax",
    "softmax at half the temperature": gnn.aggr.SoftmaxAggregation(t=2.0),
    "softmax at twice the temperature, semi": gnn.aggr.SoftmaxAggregation(t=0.5, semi_grad=True),
    "softmax of channels": gnn.aggr.SoftmaxAggregation(learn=True, channels=WIDTH),
    "powermean": gnn.aggr.PowerMeanAggregation(p=2.5, learn=True),
    "mul": "mul",
    "median": "median",
    "quantiles": gnn.aggr.QuantileAggregation([0.2, 0.7], "midpoint", fill_value=3.0),
    "several": ["mean", "std", "max", "median"],
    "several semi": [gnn.aggr.VarAggregation(semi_grad=True), gnn.aggr.StdAggregation()],
    "several projected": gnn.aggr.MultiAggregation(
        ["sum", "softmax"], mode="proj", mode_kwargs={"in_channels": WIDTH, "out_channels": WIDTH}
    ),
    "several at most": gnn.aggr.MultiAggregation(["sum", "min"], mode="max"),
    "scaled": gnn.aggr.DegreeScalerAggregation(["sum", "mean"], SCALERS, DEGREES, train_norm=True),
}


def compare(model, call, gradients_of, took_fast_path, operands, tolerance=2e-5):
    theirs = gradients_of(model, call, **operands)
    with onehop.patch():
        ours = gradients_of(model, call, **operands)
        again = gradients_of(model, call, **operands)
        taken = took_fast_path(call, copy.deepcopy(model), **operands)
    assert set(taken) == {None}
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(
            ours[name], tensor, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )
        assert torch.equal(ours[name], again[name]), f"{name} differs from run to run"


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_pygs_layers_and_users(name, edge_index, gradients_of, took_fast_path):
    case = IN_BLOCKS[name]
    torch.manual_seed(0)
    model, operands = case.make(), operands_of(case, torch.float32)
    compare(model, case_call(case, edge_index), gradients_of, took_fast_path, operands)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_aggregations_of_a_plain_message(name, gradients_of, took_fast_path):
    torch.manual_seed(0)
    model = gnn.SimpleConv(aggr=copy.deepcopy(AGGREGATIONS[name]))
    edges = make_edges(NODES, NODES, EDGES)
    compare(
        model, lambda m, x: m(x, edges), gradients_of, took_fast_path, {"x": torch.randn(NODES, WIDTH).exp()}
    )


@pairwise(aggr=["sum", "mean", "max", "std"], width=[1, 3, 17, 63])
def test_odd_widths_hubs_empty_rows_and_other_orders(width, aggr, gradients_of, took_fast_path):
    torch.manual_seed(0)
    edges = make_edges(NODES, NODES, EDGES)
    edges[1, ::2] = 7
    edges = edges[:, edges[1] > 1]
    model = gnn.GINEConv(torch.nn.Linear(width * 1, 4), aggr=aggr)
    operands = {"x": torch.randn(NODES, width), "edge_attr": torch.randn(edges.size(1), width)}
    if aggr == "std":
        # Its gradient is a difference of large numbers, whose last digits PyG's order of sums decides.
        model, operands = model.double(), {name: tensor.double() for name, tensor in operands.items()}
    call = lambda m, x, edge_attr: m(x, edges, edge_attr)  # noqa: E731
    compare(model, call, gradients_of, took_fast_path, operands)
    order = edges[1].argsort(stable=True)
    edges = edges[:, order]
    compare(model, lambda m, x, edge_attr: m(x, edges, edge_attr), gradients_of, took_fast_path, operands)


def test_hypergraphs(gradients_of, took_fast_path):
    edges = make_edges(NODES, NODES, EDGES)
    model = gnn.HypergraphConv(WIDTH, 4)
    compare(model, lambda m, x: m(x, edges), gradients_of, took_fast_path, {"x": torch.randn(NODES, WIDTH)})


def test_bipartite_and_point_clouds(gradients_of, took_fast_path):
    edges = make_edges(NODES, 9, EDGES)
    call = lambda m, x, y, edge_attr: m((x, y), edges, edge_attr, size=(NODES, 9))  # noqa: E731
    operands = {
        "x": torch.randn(NODES, WIDTH),
        "y": torch.randn(9, WIDTH),
        "edge_attr": torch.rand(EDGES, DIM),
    }
    model = gnn.GINEConv(rowwise_mlp(WIDTH), edge_dim=DIM)
    compare(model, call, gradients_of, took_fast_path, operands)
    points = gnn.PointNetConv(rowwise_mlp(DIM), add_self_loops=False)
    call = lambda m, p, q: m((None, None), (p, q), edges)  # noqa: E731
    compare(points, call, gradients_of, took_fast_path, {"p": torch.randn(NODES, 3), "q": torch.randn(9, 3)})


def test_ties_split_evenly(gradients_of, took_fast_path):
    edges = make_edges(NODES, NODES, EDGES)
    operands = {"x": torch.randint(0, 2, (NODES, WIDTH)).float(), "edge_attr": torch.ones(EDGES, WIDTH)}
    model = gnn.GINEConv(torch.nn.Linear(WIDTH, 4), aggr="max")
    compare(model, lambda m, **given: m(edge_index=edges, **given), gradients_of, took_fast_path, operands)


def test_second_derivatives():
    edges, model = make_edges(NODES, NODES, EDGES), gnn.CGConv(WIDTH).double()

    def penalty() -> list[Tensor]:
        x = torch.randn(NODES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        # The operand is made with a parameter that the message uses again.
        x = (x @ model.lin_f.weight[:, :WIDTH]).requires_grad_()
        (slope,) = torch.autograd.grad(model(x, edges).pow(2).sum(), x, create_graph=True)
        return list(torch.autograd.grad(slope.pow(2).sum(), [x, *model.parameters()], allow_unused=True))

    theirs = penalty()
    with onehop.patch():
        ours = penalty()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_set_between_forward_and_backward_does_not_count(gradients_of):
    edges = make_edges(NODES, NODES, EDGES)
    x = torch.randn(NODES, WIDTH)

    def run(disturb: bool) -> Tensor:
        torch.manual_seed(0)
        model = gnn.EdgeConv(gnn.MLP([2 * WIDTH, 5, 4])).eval()
        leaf = x.clone().requires_grad_()
        out = model(leaf, edges)
        if disturb:
            model.train()
            model.nn = torch.nn.Identity()
        out.sum().backward()
        return leaf.grad

    with onehop.patch():
        assert torch.equal(run(False), run(True))


def test_a_write_to_an_operand_before_backward_is_reported():
    x = torch.randn(NODES, WIDTH, requires_grad=True)
    operand = x * 1
    with onehop.patch():
        out = gnn.ResGatedGraphConv(WIDTH, 4)((operand, operand), make_edges(NODES, NODES, EDGES))
        mine = Mine()(operand, make_edges(NODES, NODES, EDGES), torch.rand(EDGES, DIM))
        operand.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (out.sum() + mine.sum()).backward()


def test_edits_of_the_edges_copies_and_pickles():
    torch.manual_seed(0)
    edges, x, model = make_edges(NODES, NODES, EDGES), torch.randn(NODES, WIDTH), gnn.CGConv(WIDTH)
    with onehop.patch():
        model(x, edges)
        edges[1] = edges[1].flip(0)
        ours = model(x, edges)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(other(x, edges), ours)
    torch.testing.assert_close(ours, model(x, edges))


def test_without_gradients_and_in_inference_mode(took_fast_path):
    edges, x, model = make_edges(NODES, NODES, EDGES), torch.randn(NODES, WIDTH), gnn.CGConv(WIDTH)
    expected = model(x, edges)
    with onehop.patch():
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode:
                torch.testing.assert_close(model(x, edges), expected.detach())
                assert took_fast_path(model, x, edges) == [None]


def test_explain_tells_of_the_blocks(monkeypatch):
    small_blocks.force(monkeypatch)
    (row,) = onehop.explain(
        pna(["mean", "std"]), torch.randn(NODES, WIDTH), make_edges(NODES, NODES, EDGES)
    ).layers
    assert row.form == "its message in blocks"
    assert row.reduce == "degree-scaled [mean, std]"
    assert "of about 8 edges each" in row.plan
