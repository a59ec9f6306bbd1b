"""Sparse matrices in place of an edge_index, patched and unpatched: outputs and all gradients by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn.aggr import MaxAggregation

import onehop
from onehop import Graph
from onehop.integrations.pyg.edges.matrices import TorchMatrix
from onehop.integrations.pyg.leave import Leave
from tests.integrations.pyg.adjacencies import (
    CONTEXTS,
    LAYOUTS,
    WARNINGS,
    assert_same,
    assert_same_in_context,
    entries,
    matrix,
    model_of,
    outcome,
)
from tests.integrations.pyg.layers import CASES, NODES, WIDTH, case_call, operands_of

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]

FAST = """
    GCN; GCN improved; GCN without loops; GCN unnormalised; GCN cached; GCN mean; GCN max; GCN subclass;
    SG; SSG; APPNP; APPNP dropout; TAG; TAG unnormalised; LG; GCN2; MixHop; PDN; LE; LE mean; GatedGraph;
    GIN; GIN max; SAGE mean; SAGE sum; SAGE max; SAGE min; SAGE project; Graph add; Graph mean; Graph max;
    Graph min; Graph unweighted; Simple sum; Simple mean; Simple max; Plain sum; Plain mean; Plain max;
    Plain min; SparseLinear; LabelPropagation; ClusterGCN; GAT; GAT one head; GAT without loops; GAT dropout;
    GAT mean; GATv2; GATv2 shared; GATv2 dropout; Transformer; Transformer beta; Transformer dropout;
    Transformer edges; AGNN; AGNN fixed; FA; FA mean
"""


def call_with(name: str, make: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def call(model: torch.nn.Module, values: Tensor, **operands: Tensor) -> Tensor:
        return case_call(CASES[name], make(values))(model, **operands)

    return call


def fast() -> list[str]:
    return [name.strip() for name in FAST.split(";")]


@pytest.mark.parametrize("name", fast())
def test_layers_take_the_fast_path(name, at, values, took_fast_path):
    model, operands = model_of(name, torch.float32), operands_of(CASES[name], torch.float32)
    operands.pop("edge_weight", None)
    if "edge_attr" in operands:
        operands["edge_attr"] = operands["edge_attr"][: at.size(1)]
    call = case_call(CASES[name], matrix("csr", at, values.float()))
    with onehop.patch():
        reasons = outcome(lambda: took_fast_path(call, model, **operands))
    assert reasons
    assert set(reasons) == {None}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_layouts_take_the_fast_path(layout, aggr, at, values, took_fast_path):
    conv, x = gnn.SAGEConv(WIDTH, 4, aggr=aggr).double(), torch.randn(NODES, WIDTH).double()
    with onehop.patch():
        reasons = took_fast_path(conv, x, matrix(layout, at, values))
    summed = "edge_index is a sparse matrix whose entries have to be summed first (coalesced)"
    assert reasons == [summed if layout == "uncoalesced" else None]


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize("name", ["SAGE mean", "SAGE max", "GCN", "GIN", "LE", "Transformer"])
def test_values_that_need_a_gradient_take_the_fast_path(name, layout, at, values, took_fast_path):
    adjacency = matrix(layout, at, values.clone().requires_grad_())
    with onehop.patch():
        reasons = took_fast_path(model_of(name), torch.randn(NODES, WIDTH).double(), adjacency)
    assert reasons == [None]


# All forms: a mean over CSC in a narrower dtype is left to PyG, three values together.
@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_narrower_dtypes(aggr, dtype, layout, at, values, gradients_of):
    model = gnn.SAGEConv(WIDTH, 4, aggr=aggr, root_weight=False)
    x = operands_of(CASES["SAGE mean"], dtype)["x"]
    exact = gradients_of(model.double(), lambda m, x: m(x, matrix(layout, at, values)), x=x.double())
    model.to(dtype)
    adjacency = matrix(layout, at, values.to(dtype))
    call = lambda m, x: m(x, adjacency)  # noqa: E731, a test's own
    expected = outcome(lambda: gradients_of(model, call, x=x))
    with onehop.patch():
        found = outcome(lambda: gradients_of(model, call, x=x))
    if isinstance(expected, tuple):
        assert found == expected
        return
    for key, value in exact.items():
        assert found[key].dtype is expected[key].dtype
        allowed = 4 * (expected[key] - value).abs().max().item() + 0.2 * torch.finfo(dtype).eps ** 0.5
        assert (found[key] - value).abs().max().item() <= allowed, key


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
@pytest.mark.parametrize("targets", [True, False])
def test_bipartite_matrices(targets, aggr, layout, edges, gradients_of, took_fast_path):
    at = entries(edges(20, 12, 60))
    numbers = torch.rand(at.size(1)).double()
    adjacency = matrix(layout, at, numbers, shape=(12, 20))
    torch.manual_seed(0)
    model = gnn.SAGEConv((WIDTH, WIDTH), 4, aggr=aggr).double()
    operands = {"source": torch.randn(20, WIDTH).double()}
    if targets:
        operands["target"] = torch.randn(12, WIDTH).double()

    def call(model: torch.nn.Module, source: Tensor, target: Tensor | None = None) -> Tensor:
        return model((source, target), adjacency)

    expected = gradients_of(model, call, **operands)
    with onehop.patch():
        assert_same(gradients_of(model, call, **operands), expected)
        assert took_fast_path(call, model, **operands) == [None]
    assert expected["output"].size(0) == 12


@pytest.mark.parametrize("name", ["SAGE sum", "SAGE mean", "SAGE max", "GCN", "GIN"])
def test_numbers_of_32_bits(name, at, values, gradients_of, took_fast_path):
    adjacency = matrix("csr", at, values, index=torch.int32)
    model, operands = model_of(name), operands_of(CASES[name], torch.float64)
    call = case_call(CASES[name], adjacency)
    expected = gradients_of(model, call, **operands)
    with onehop.patch():
        assert_same(gradients_of(model, call, **operands), expected)
        assert took_fast_path(call, model, **operands) == [None]


@pytest.mark.parametrize("kind", ["unsorted", "repeated"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_rows_in_any_order(aggr, kind, at, values, gradients_of, took_fast_path):
    """Torch takes them, though it asks for columns that ascend; gradients to their values are its own."""
    rows, columns = at
    if kind == "unsorted":
        order = torch.arange(at.size(1)).flip(0)[rows.flip(0).argsort(stable=True)]
        columns = columns[order]
        assert bool((columns.diff()[rows.diff() == 0] < 0).any())
    else:
        columns = columns - columns % 2
    found_at = torch.stack([rows, columns])
    torch.manual_seed(0)
    model = gnn.SAGEConv(WIDTH, 4, aggr=aggr).double()
    operands = operands_of(CASES["SAGE mean"], torch.float64)
    adjacency = matrix("csr", found_at, values)
    expected = gradients_of(model, lambda m, x: m(x, adjacency), **operands)
    with onehop.patch():
        assert_same(gradients_of(model, lambda m, x: m(x, adjacency), **operands), expected)
        assert took_fast_path(lambda x: model(x, adjacency), **operands) == [None]
    of_values = call_with("SAGE mean", lambda v: matrix("csr", found_at, v))
    expected = outcome(lambda: gradients_of(model, of_values, values=values, **operands))
    with onehop.patch():
        found = outcome(lambda: gradients_of(model, of_values, values=values, **operands))
        assert_same(found, expected)
        needy = matrix("csr", found_at, values.clone().requires_grad_())
        reason = "torch gives gradients to values of distinct, ascending columns in every row"
        assert took_fast_path(lambda x: model(x, needy), **operands) == [reason]


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_the_first_of_the_edges_that_tie_gets_the_gradient(layout, aggr, at, gradients_of, took_fast_path):
    x = torch.randint(-1, 2, (NODES, WIDTH), generator=torch.Generator().manual_seed(3)).double()
    adjacency = matrix(layout, at, torch.ones(at.size(1)).double())
    model = gnn.SAGEConv(WIDTH, 4, aggr=aggr).double()
    call = lambda m, x: m(x, adjacency)  # noqa: E731, a test's own
    expected = gradients_of(model, call, x=x)
    with onehop.patch():
        assert_same(gradients_of(model, call, x=x), expected)
        assert took_fast_path(call, model, x=x.requires_grad_()) == [None]
    plain = gradients_of(model, lambda m, x: m(x, at.flip(0)), x=x.detach())
    assert not torch.allclose(plain["gradient of x"], expected["gradient of x"])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("aggr", ["sum", "max", "min"])
def test_features_that_are_no_numbers(aggr, number, at, values, gradients_of):
    x = operands_of(CASES["SAGE mean"], torch.float64)["x"]
    x[2, 1] = number
    adjacency = matrix("csr", at, values)
    model = gnn.SimpleConv(aggr=aggr)
    call = lambda m, x: m(x, adjacency)  # noqa: E731, a test's own
    expected = gradients_of(model, call, x=x)
    with onehop.patch():
        assert_same(gradients_of(model, call, x=x), expected)
        with torch.no_grad():
            torch.testing.assert_close(model(x, adjacency), expected["output"], equal_nan=True)


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_a_matrix_that_is_a_leaf_gets_a_sparse_gradient(aggr, layout, at, values):
    x = torch.randn(NODES, WIDTH).double()

    def gradient() -> dict[str, Tensor]:
        adjacency = matrix(layout, at, values.clone()).detach().requires_grad_()
        gnn.SimpleConv(aggr=aggr)(x, adjacency).square().sum().backward()
        return {"adjacency": adjacency.grad}

    expected = gradient()
    with onehop.patch():
        found = gradient()
    assert_same(found, expected)


def test_an_aggregation_module_runs_messages_without_the_values(at, values, gradients_of, took_fast_path):
    model = gnn.SAGEConv(WIDTH, 4, aggr=MaxAggregation()).double()
    operands, adjacency = operands_of(CASES["SAGE mean"], torch.float64), matrix("csr", at, values)
    call = lambda m, x: m(x, adjacency)  # noqa: E731, a test's own
    expected = gradients_of(model, call, **operands)
    assert_same(expected, gradients_of(model, lambda m, x: m(x, at.flip(0)), **operands))
    with onehop.patch():
        assert_same(gradients_of(model, call, **operands), expected)
        assert took_fast_path(call, model, **operands) == [None]


def test_weights_stand_in_for_values_where_messages_run(at, values, gradients_of, took_fast_path):
    model = gnn.LEConv(WIDTH, 4).double()
    operands, adjacency = operands_of(CASES["LE"], torch.float64), matrix("csr", at, values)
    call = lambda m, x, w: m(x, adjacency, w)  # noqa: E731, a test's own
    expected = gradients_of(model, call, w=values.flip(0), **operands)
    with onehop.patch():
        assert_same(gradients_of(model, call, w=values.flip(0), **operands), expected)
        assert took_fast_path(call, model, w=values.flip(0), **operands) == [None]


# What is left to PyG


def graph_of(adjacency: Tensor) -> Graph | None:
    return TorchMatrix(adjacency).find()


def test_edges_that_are_out_of_range_have_no_graph(at, values):
    """Torch does not check them, and reads what lies there."""
    for place, number in ((0, -1), (3, NODES)):
        adjacency = matrix("csr", at, values)
        adjacency.col_indices()[place] = number
        assert graph_of(adjacency) is None
    adjacency = matrix("csr", at, values)
    adjacency.crow_indices()[2] = at.size(1) + 1
    assert graph_of(adjacency) is None


def test_entries_that_are_said_to_be_coalesced_but_are_out_of_order_have_no_graph(at, values):
    assert graph_of(matrix("coo", at, values)) is not None
    assert graph_of(matrix("coo", at.flip(1), values)) is None
    TorchMatrix(matrix("coo", at, values)).check()
    across = torch.sparse_coo_tensor(at.t().contiguous().t(), values, (NODES, NODES), is_coalesced=True)
    with pytest.raises(Leave, match="edge_index is a sparse matrix whose indices are not contiguous"):
        TorchMatrix(across).check()


class Own(gnn.SAGEConv):
    def message_and_aggregate(self, adj_t: Tensor, x: Any) -> Tensor:
        return 2 * super().message_and_aggregate(adj_t, x)


def test_fused_functions_of_a_users_own_are_called(at, values, took_fast_path):
    adjacency, x = matrix("csr", at, values), torch.randn(NODES, WIDTH).double()
    conv = Own(WIDTH, 4).double()
    expected = conv(x, adjacency)
    with onehop.patch():
        assert torch.equal(conv(x, adjacency), expected)
        assert took_fast_path(conv, x, adjacency) == ["its class overrides message_and_aggregate"]
    plain = gnn.SAGEConv(WIDTH, 4).double()
    plain.message_and_aggregate = lambda adj_t, x: x[0] * 0
    expected = plain(x, adjacency)
    with onehop.patch():
        assert torch.equal(plain(x, adjacency), expected)
        assert took_fast_path(plain, x, adjacency) == ["this instance overrides message_and_aggregate"]


ERRORS = {
    "other dtype": lambda at, v: (gnn.SAGEConv(WIDTH, 4), torch.randn(NODES, WIDTH), matrix("csr", at, v)),
    "whole numbers": lambda at, v: (
        gnn.SAGEConv(WIDTH, 4),
        torch.randn(NODES, WIDTH),
        matrix("csr", at, v.long()),
    ),
    "three dimensions": lambda at, v: (
        gnn.SAGEConv(WIDTH, 4).double(),
        torch.randn(2, NODES, WIDTH).double(),
        matrix("csr", at, v),
    ),
    "other sizes": lambda at, v: (
        gnn.SAGEConv(WIDTH, 4).double(),
        torch.randn(NODES + 1, WIDTH).double(),
        matrix("csr", at, v),
    ),
    "GCN of another size": lambda at, v: (
        gnn.GCNConv(WIDTH, 4).double(),
        torch.randn(NODES + 1, WIDTH).double(),
        matrix("csr", at, v),
    ),
    "GCN of a rectangle": lambda at, v: (
        gnn.GCNConv(WIDTH, 4).double(),
        torch.randn(NODES, WIDTH).double(),
        matrix("csr", at, v, shape=(NODES, NODES + 1)),
    ),
    "backwards": lambda at, v: (
        gnn.SAGEConv(WIDTH, 4, flow="target_to_source").double(),
        torch.randn(NODES, WIDTH).double(),
        matrix("csr", at, v),
    ),
    "messages over CSC": lambda at, v: (
        gnn.LEConv(WIDTH, 4).double(),
        torch.randn(NODES, WIDTH).double(),
        matrix("csc", at, v),
    ),
    "blocks": lambda at, v: (
        gnn.SAGEConv(WIDTH, 4).double(),
        torch.randn(4, WIDTH).double(),
        torch.eye(4).double().to_sparse_bsr((2, 2)),
    ),
    "a batch": lambda at, v: (
        gnn.SAGEConv(WIDTH, 4).double(),
        torch.randn(NODES, WIDTH).double(),
        torch.ones(2, NODES, NODES).double().to_sparse_csr(),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pygs(name, at, values):
    conv, x, adjacency = ERRORS[name](at, values)
    with pytest.raises(Exception) as unpatched:  # noqa: PT011, whatever PyG raises
        conv(x, adjacency)
    with onehop.patch(), pytest.raises(type(unpatched.value)) as patched:
        conv(x, adjacency)
    assert str(patched.value) == str(unpatched.value)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["SAGE sum", "SAGE mean", "SAGE max", "GCN", "LE"])
def test_contexts(name, context, at, values):
    adjacency = matrix("csr", at, values.float())
    assert_same_in_context(context, model_of(name, torch.float32), torch.randn(NODES, WIDTH), adjacency)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(4, 4), (0, 0), (3, 5)])
def test_empty_matrices(shape, aggr, gradients_of):
    rowptr, col = torch.zeros(shape[0] + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    adjacency = torch.sparse_csr_tensor(rowptr, col, torch.zeros(0).double(), shape)
    x, conv = torch.randn(shape[1], WIDTH).double(), gnn.SimpleConv(aggr=aggr)

    def call(model: torch.nn.Module, x: Tensor) -> Tensor:
        return model((x, None), adjacency)

    expected = outcome(lambda: gradients_of(conv, call, x=x))
    with onehop.patch():
        assert_same(outcome(lambda: gradients_of(conv, call, x=x)), expected)
