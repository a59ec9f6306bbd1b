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
    assert_same_in_context,
    entries,
    matrix,
    model_of,
)
from tests.integrations.pyg.layers import CASES, NODES, WIDTH, case_call, operands_of
from tests.integrations.same import (
    BITS,
    SINGLE,
    Raised,
    assert_same,
    fast,
    outcome,
    reasons,
    refused,
    same,
    same_error,
    step,
)

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


def fast_cases() -> list[str]:
    return [name.strip() for name in FAST.split(";")]


def sage(aggr: Any = "mean", width: Any = WIDTH, **options: Any) -> gnn.SAGEConv:
    torch.manual_seed(0)
    return gnn.SAGEConv(width, 4, aggr=aggr, **options).double()


def features(rows: int = NODES) -> Tensor:
    return torch.randn(rows, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


@pytest.mark.parametrize("name", fast_cases())
def test_layers_take_the_fast_path(name, at, values):
    model, operands = model_of(name, torch.float32), operands_of(CASES[name], torch.float32)
    operands.pop("edge_weight", None)
    if "edge_attr" in operands:
        operands["edge_attr"] = operands["edge_attr"][: at.size(1)]
    call = case_call(CASES[name], matrix("csr", at, values.float()))
    fast(lambda: call(model, **operands), **SINGLE)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_layouts_take_the_fast_path(layout, aggr, at, values):
    conv, adjacency = sage(aggr), matrix(layout, at, values)
    summed = "edge_index is a sparse matrix whose entries have to be summed first (coalesced)"
    found = reasons(same(lambda: conv(features(), adjacency)))
    assert found == [summed if layout == "uncoalesced" else None]


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize("name", ["SAGE mean", "SAGE max", "GCN", "GIN", "LE", "Transformer"])
def test_values_that_need_a_gradient_take_the_fast_path(name, layout, at, values):
    def call(model: torch.nn.Module, x: Tensor, values: Tensor) -> Tensor:
        return model(x, matrix(layout, at, values))

    # Torch has no gradient of what PyG's normalisation makes of COO.
    fast(step(call, model_of(name), features(), values), errors=(name, layout) == ("GCN", "coo"))


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
    if isinstance(expected, Raised):
        assert found == expected
        return
    for key, value in exact.items():
        assert found[key].dtype is expected[key].dtype
        allowed = 4 * (expected[key] - value).abs().max().item() + 0.2 * torch.finfo(dtype).eps ** 0.5
        assert (found[key] - value).abs().max().item() <= allowed, key


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
@pytest.mark.parametrize("targets", [True, False])
def test_bipartite_matrices(targets, aggr, layout, edges):
    at = entries(edges(20, 12, 60))
    adjacency = matrix(layout, at, torch.rand(at.size(1)).double(), shape=(12, 20))
    pair, model = (features(), features(12) if targets else None), sage(aggr, (WIDTH, WIDTH))
    fast(step(model, pair, adjacency))
    assert model(pair, adjacency).size(0) == 12


@pytest.mark.parametrize("name", ["SAGE sum", "SAGE mean", "SAGE max", "GCN", "GIN"])
def test_numbers_of_32_bits(name, at, values):
    fast(step(model_of(name), features(), matrix("csr", at, values, index=torch.int32)))


@pytest.mark.parametrize("kind", ["unsorted", "repeated"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_rows_in_any_order(aggr, kind, at, values):
    """Torch takes them, though it asks for columns that ascend; gradients to their values are its own."""
    rows, columns = at
    if kind == "unsorted":
        order = torch.arange(at.size(1)).flip(0)[rows.flip(0).argsort(stable=True)]
        columns = columns[order]
        assert bool((columns.diff()[rows.diff() == 0] < 0).any())
    else:
        columns = columns - columns % 2
    found_at, model = torch.stack([rows, columns]), sage(aggr)
    fast(step(model, features(), matrix("csr", found_at, values)))

    def call(model: torch.nn.Module, x: Tensor, values: Tensor) -> Tensor:
        return model(x, matrix("csr", found_at, values))

    reason = "torch gives gradients to values of distinct, ascending columns in every row"
    refused(step(call, model, features(), values), reason, errors=kind == "repeated")


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_the_first_of_the_edges_that_tie_gets_the_gradient(layout, aggr, at):
    x = torch.randint(-1, 2, (NODES, WIDTH), generator=torch.Generator().manual_seed(3)).double()
    adjacency, model = matrix(layout, at, torch.ones(at.size(1)).double()), sage(aggr)
    fast(step(model, x, adjacency))
    assert not torch.allclose(step(model, x, at.flip(0))()[1], step(model, x, adjacency)()[1])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("aggr", ["sum", "max", "min"])
def test_features_that_are_no_numbers(aggr, number, at, values):
    x, adjacency, model = features(), matrix("csr", at, values), gnn.SimpleConv(aggr=aggr)
    x[2, 1] = number
    same(step(model, x, adjacency))
    same(torch.no_grad()(lambda: model(x, adjacency)))


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_a_matrix_that_is_a_leaf_gets_a_sparse_gradient(aggr, layout, at, values):
    def gradient() -> Tensor:
        adjacency = matrix(layout, at, values.clone()).detach().requires_grad_()
        gnn.SimpleConv(aggr=aggr)(features(), adjacency).square().sum().backward()
        return adjacency.grad

    same(gradient)


def test_an_aggregation_module_runs_messages_without_the_values(at, values):
    model, adjacency = sage(MaxAggregation()), matrix("csr", at, values)
    assert_same(step(model, features(), adjacency)(), step(model, features(), at.flip(0))())
    fast(step(model, features(), adjacency))


def test_weights_stand_in_for_values_where_messages_run(at, values):
    fast(step(gnn.LEConv(WIDTH, 4).double(), features(), matrix("csr", at, values), values.flip(0)))


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


def test_fused_functions_of_a_users_own_are_called(at, values):
    adjacency, x = matrix("csr", at, values), features()
    conv, plain = Own(WIDTH, 4).double(), sage()
    refused(lambda: conv(x, adjacency), "its class overrides message_and_aggregate", **BITS)
    plain.message_and_aggregate = lambda adj_t, x: x[0] * 0
    refused(lambda: plain(x, adjacency), "this instance overrides message_and_aggregate", **BITS)


ERRORS: dict[str, Callable[[Tensor, Tensor], tuple[Any, ...]]] = {
    "other dtype": lambda at, v: (sage().float(), features().float(), matrix("csr", at, v)),
    "whole numbers": lambda at, v: (sage().float(), features().float(), matrix("csr", at, v.long())),
    "three dimensions": lambda at, v: (sage(), features().repeat(2, 1, 1), matrix("csr", at, v)),
    "other sizes": lambda at, v: (sage(), features(NODES + 1), matrix("csr", at, v)),
    "GCN of another size": lambda at, v: (model_of("GCN"), features(NODES + 1), matrix("csr", at, v)),
    "GCN of a rectangle": lambda at, v: (
        model_of("GCN"),
        features(),
        matrix("csr", at, v, shape=(NODES, NODES + 1)),
    ),
    "backwards": lambda at, v: (sage(flow="target_to_source"), features(), matrix("csr", at, v)),
    "messages over CSC": lambda at, v: (model_of("LE"), features(), matrix("csc", at, v)),
    "blocks": lambda at, v: (sage(), features(4), torch.eye(4).double().to_sparse_bsr((2, 2))),
    "a batch": lambda at, v: (sage(), features(), torch.ones(2, NODES, NODES).double().to_sparse_csr()),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pygs(name, at, values):
    conv, x, adjacency = ERRORS[name](at, values)
    same_error(lambda: conv(x, adjacency))


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["SAGE sum", "SAGE mean", "SAGE max", "GCN", "LE"])
def test_contexts(name, context, at, values):
    adjacency = matrix("csr", at, values.float())
    assert_same_in_context(context, model_of(name, torch.float32), torch.randn(NODES, WIDTH), adjacency)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(4, 4), (0, 0), (3, 5)])
def test_empty_matrices(shape, aggr):
    rowptr, col = torch.zeros(shape[0] + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    adjacency = torch.sparse_csr_tensor(rowptr, col, torch.zeros(0).double(), shape)
    same(step(gnn.SimpleConv(aggr=aggr), (features(shape[1]), None), adjacency))
