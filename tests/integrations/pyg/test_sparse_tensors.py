"""torch_sparse's SparseTensor in place of an edge_index, patched and unpatched: outputs and all gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.utils import spmm

import onehop
from onehop.graph import Graph
from onehop.integrations.pyg.edges.sparse_tensors import TorchSparseTensor
from tests.integrations.pyg.adjacencies import CONTEXTS, WARNINGS, assert_same_in_context, model_of
from tests.integrations.pyg.layers import CASES, NODES, WIDTH, case_call, operands_of
from tests.integrations.same import assert_same, outcome

pytest.importorskip("torch_sparse", reason="torch_sparse is not installed: pip install torch_sparse")
from torch_sparse import SparseTensor

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]

# Of the cases that are tested, those that PyG takes with values and without.
FAST = """
    GCN; GCN improved; GCN without loops; GCN unnormalised; GCN cached; GCN mean; GCN max; GCN subclass;
    SG; SSG; APPNP; APPNP dropout; TAG; TAG unnormalised; LG; GCN2; MixHop; ARMA; ARMA one stack;
    LE; LE mean; GatedGraph; WLContinuous; MF; GIN; GIN max; SAGE mean; SAGE sum; SAGE max; SAGE min;
    SAGE project; Graph add; Graph mean; Graph max; Graph min; Graph unweighted; Simple sum; Simple mean;
    Simple max; Simple self loop; Plain sum; Plain mean; Plain max; Plain min; SparseLinear;
    LabelPropagation; ClusterGCN; GAT; GAT one head; GAT without loops; GAT dropout; GAT mean; GATv2;
    GATv2 shared; GATv2 dropout; Transformer; Transformer beta; Transformer dropout; AGNN; AGNN fixed
"""


def fast() -> list[str]:
    return [name.strip() for name in FAST.split(";")]


def sparse(
    at: Tensor, values: Tensor | None = None, shape: tuple[int, int] = (NODES, NODES), **options: bool
) -> SparseTensor:
    return SparseTensor(row=at[0].clone(), col=at[1].clone(), value=values, sparse_sizes=shape, **options)


def by_pointers(at: Tensor, values: Tensor | None = None) -> SparseTensor:
    rowptr = torch.zeros(NODES + 1, dtype=torch.int64)
    rowptr[1:] = torch.bincount(at[0], minlength=NODES).cumsum(0)
    return SparseTensor(rowptr=rowptr, col=at[1].clone(), value=values, sparse_sizes=(NODES, NODES))


def call_with(name: str, at: Tensor) -> Callable[..., Tensor]:
    def call(model: torch.nn.Module, values: Tensor, **operands: Tensor) -> Tensor:
        return case_call(CASES[name], sparse(at, values))(model, **operands)

    return call


@pytest.mark.parametrize("kind", ["no values", "ones", "values", "gradient"])
@pytest.mark.parametrize("name", CASES)
def test_results_are_pygs(name, kind, at, values, gradients_of):
    model, operands = model_of(name), operands_of(CASES[name], torch.float64)
    operands.pop("edge_weight", None)
    if "edge_attr" in operands:
        operands["edge_attr"] = operands["edge_attr"][:1].expand(at.size(1), -1).clone()
    if kind == "gradient":
        call, operands["values"] = call_with(name, at), values
    else:
        given = {"no values": None, "ones": torch.ones_like(values), "values": values}[kind]
        call = case_call(CASES[name], sparse(at, given))
    expected = outcome(lambda: gradients_of(model, call, **operands))
    with onehop.patch():
        found = outcome(lambda: gradients_of(model, call, **operands))
        again = outcome(lambda: gradients_of(model, call, **operands))
    assert_same(found, expected)
    assert_same(again, expected)


@pytest.mark.parametrize("has_values", [True, False])
@pytest.mark.parametrize("name", fast())
def test_layers_take_the_fast_path(name, has_values, at, values, took_fast_path):
    model, operands = model_of(name, torch.float32), operands_of(CASES[name], torch.float32)
    operands.pop("edge_weight", None)
    call = case_call(CASES[name], sparse(at, values.float() if has_values else None))
    # PyG gives labels 32 bits, and these messages multiply by a weight.
    with onehop.patch():
        reasons = outcome(lambda: took_fast_path(call, model, **operands))
    assert reasons
    assert set(reasons) == {None}


@pytest.mark.parametrize("name", ["SAGE mean", "SAGE max", "GCN", "Graph max", "GIN", "LE", "Transformer"])
def test_values_that_need_a_gradient_take_the_fast_path(name, at, values, took_fast_path):
    adjacency = sparse(at, values.clone().requires_grad_())
    with onehop.patch():
        reasons = took_fast_path(model_of(name), torch.randn(NODES, WIDTH).double(), adjacency)
    assert reasons == [None]


@pytest.mark.parametrize("make", [sparse, by_pointers])
@pytest.mark.parametrize("has_values", [True, False])
def test_the_graph_is_made_once(has_values, make, at, values, monkeypatch):
    made: list[int] = []
    theirs = onehop.Graph.from_csr
    monkeypatch.setattr(onehop.Graph, "from_csr", lambda *args: made.append(1) or theirs(*args))
    x, adjacency = torch.randn(NODES, WIDTH).double(), make(at, values if has_values else None)
    layers = [gnn.GCNConv(WIDTH, 4).double(), gnn.SAGEConv(WIDTH, 4).double(), gnn.GATConv(WIDTH, 4).double()]
    with onehop.patch():
        for _ in range(3):
            for layer in layers:
                layer(x, adjacency)
                layer(x, adjacency.set_value(None))
    # The edges; GCN's with loops, of values and of none; GAT's with loops, likewise.
    assert len(made) <= (5 if has_values else 3)


@pytest.mark.parametrize("targets", [True, False])
@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
def test_bipartite(aggr, targets, edges, gradients_of, took_fast_path):
    at = edges(20, 12, 60).flip(0).unique(dim=1)
    adjacency = sparse(at, torch.rand(at.size(1)).double(), shape=(12, 20))
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


@pytest.mark.parametrize("of_values", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("of_x", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["Simple sum", "Simple mean", "Simple max", "LE", "GCN"])
def test_values_of_other_dtypes(name, of_x, of_values, at, values, gradients_of):
    model, x = model_of(name, of_x), operands_of(CASES[name], of_x)["x"]
    adjacency = sparse(at, (4 * values).to(of_values))
    call = case_call(CASES[name], adjacency)
    expected = outcome(lambda: gradients_of(model, call, x=x))
    with onehop.patch():
        found = outcome(lambda: gradients_of(model, call, x=x))
    tolerance = 0.15 if torch.bfloat16 in (of_x, of_values) else 1e-4 if of_x is torch.float32 else 1e-6
    assert_same(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_repeated_entries_each_count(aggr, learned, at, values, gradients_of, took_fast_path):
    at = torch.stack([at[0], at[1] - at[1] % 2])
    assert at.unique(dim=1).size(1) < at.size(1)
    model, x = gnn.SimpleConv(aggr=aggr), operands_of(CASES["SAGE mean"], torch.float64)["x"]
    call = lambda m, x, v: m(x, sparse(at, v if learned else v.detach()))  # noqa: E731, a test's own
    expected = gradients_of(model, call, x=x, v=values)
    with onehop.patch():
        assert_same(gradients_of(model, call, x=x, v=values), expected)
        assert took_fast_path(call, model, x=x, v=values) == [None]
    assert ("gradient of v" in expected) is learned


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("aggr", ["max", "min"])
def test_the_first_of_the_edges_that_tie_gets_the_gradient(aggr, learned, at, gradients_of, took_fast_path):
    x = torch.randint(-1, 2, (NODES, WIDTH), generator=torch.Generator().manual_seed(3)).double()
    ones = torch.ones(at.size(1)).double().requires_grad_(learned)
    model = gnn.SimpleConv(aggr=aggr)
    call = lambda m, x: m(x, sparse(at, ones))  # noqa: E731, a test's own
    expected = gradients_of(model, call, x=x)
    with onehop.patch():
        assert_same(gradients_of(model, call, x=x), expected)
        assert took_fast_path(call, model, x=x.requires_grad_()) == [None]
    plain = gradients_of(model, lambda m, x: m(x, at.flip(0)), x=x.detach())
    assert not torch.allclose(plain["gradient of x"], expected["gradient of x"])


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_features_that_are_no_numbers(aggr, number, learned, at, values, gradients_of):
    x = operands_of(CASES["SAGE mean"], torch.float64)["x"]
    x[2, 1] = number
    adjacency = sparse(at, values.clone().requires_grad_(learned))
    model = gnn.SimpleConv(aggr=aggr)
    call = lambda m, x: m(x, adjacency)  # noqa: E731, a test's own
    expected = gradients_of(model, call, x=x)
    with onehop.patch():
        assert_same(gradients_of(model, call, x=x), expected)
        with torch.no_grad():
            torch.testing.assert_close(model(x, adjacency), expected["output"], equal_nan=True)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_batches_of_features(aggr, learned, at, values, gradients_of, took_fast_path):
    x = torch.randn(3, NODES, WIDTH).double()
    model = gnn.SimpleConv(aggr=aggr)
    call = lambda m, x, v: m(x, sparse(at, v if learned else v.detach()))  # noqa: E731, a test's own
    expected = gradients_of(model, call, x=x, v=values)
    with onehop.patch():
        assert_same(gradients_of(model, call, x=x, v=values), expected)
        reasons = took_fast_path(call, model, x=x, v=values)
    assert (reasons == [None]) is (aggr != "max")


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(4, 4), (0, 0), (3, 5)])
@pytest.mark.parametrize("has_values", [True, False])
def test_without_entries(has_values, shape, aggr):
    at, x = torch.zeros(2, 0, dtype=torch.int64), torch.randn(shape[1], WIDTH).requires_grad_()
    adjacency = sparse(at, torch.zeros(0) if has_values else None, shape)
    conv = gnn.SimpleConv(aggr=aggr)
    expected = outcome(lambda: conv((x, None), adjacency))
    with onehop.patch():
        found = outcome(lambda: conv((x, None), adjacency))
    if isinstance(expected, tuple):
        assert found == expected
        return
    assert torch.equal(found, expected)
    assert found.requires_grad is expected.requires_grad


def _errors(at: Tensor, values: Tensor) -> dict[str, tuple[Any, ...]]:
    x = torch.randn(NODES, WIDTH).double()
    sage = gnn.SAGEConv(WIDTH, 4).double()
    return {
        "other sizes": (sage, torch.randn(NODES + 1, WIDTH).double(), sparse(at)),
        "GCN of a rectangle": (gnn.GCNConv(WIDTH, 4).double(), x, sparse(at, shape=(NODES, NODES + 1))),
        "backwards": (gnn.SAGEConv(WIDTH, 4, flow="target_to_source").double(), x, sparse(at)),
        "values of two dimensions": (gnn.SimpleConv(), x, sparse(at, values.view(-1, 1).expand(-1, 2))),
        "no weight for ChebConv": (gnn.ChebConv(WIDTH, 4, K=2).double(), x, sparse(at)),
        "loops and features of edges": (gnn.GATConv(WIDTH, 4, edge_dim=3).double(), x, sparse(at)),
    }


@pytest.mark.parametrize("name", list(_errors(torch.zeros(2, 1, dtype=torch.int64), torch.ones(1).double())))
def test_errors_are_pygs(name, at, values):
    conv, x, adjacency = _errors(at, values)[name]
    with pytest.raises(Exception) as unpatched:  # noqa: PT011, whatever PyG raises
        conv(x, adjacency)
    with onehop.patch(), pytest.raises(type(unpatched.value)) as patched:
        conv(x, adjacency)
    assert str(patched.value) == str(unpatched.value)


def graph_of_tensor(adjacency: Any) -> Graph | None:
    return TorchSparseTensor(adjacency).find()


def test_arrays_that_contradict_each_other_have_no_graph(at):
    assert graph_of_tensor(sparse(at)) is not None
    assert graph_of_tensor(by_pointers(at)) is not None
    trusted = {"is_sorted": True, "trust_data": True}
    assert graph_of_tensor(sparse(at.flip(1), **trusted)) is None, "rows that descend"
    too_large = at.clone()
    too_large[1, 3] = NODES
    assert graph_of_tensor(sparse(too_large, **trusted)) is None, "a column out of range"
    too_large = at.clone()
    too_large[0, -1] = NODES
    assert graph_of_tensor(sparse(too_large, **trusted)) is None, "a row out of range"
    both = sparse(at)
    both.storage.rowptr()
    assert graph_of_tensor(both) is not None
    both.storage._row[-1] -= 1
    assert graph_of_tensor(both) is None, "rows that differ from the pointers"
    damaged = by_pointers(at)
    damaged.storage._rowptr[3] = at.size(1) + 1
    assert graph_of_tensor(damaged) is None, "pointers that descend"


def test_further_dimensions_of_values_are_features_of_edges(at, gradients_of, took_fast_path):
    """PyG puts them in the place of edge_attr, where a layer has one."""
    attributes = torch.randn(at.size(1), 3).double()
    x = torch.randn(NODES, WIDTH).double()
    for layer in (
        gnn.TransformerConv(WIDTH, 4, heads=2, edge_dim=3),
        gnn.GATConv(WIDTH, 4, heads=2, edge_dim=3, add_self_loops=False),
        gnn.GATv2Conv(WIDTH, 4, heads=2, edge_dim=3, add_self_loops=False),
    ):
        call = lambda m, x, v: m(x, sparse(at, v))  # noqa: E731, a test's own
        expected = gradients_of(layer.double(), call, x=x, v=attributes)
        assert "gradient of v" in expected
        with onehop.patch():
            assert_same(gradients_of(layer, call, x=x, v=attributes), expected)
            assert took_fast_path(call, layer, x=x, v=attributes) == [None]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["SAGE sum", "SAGE max", "GCN", "LE", "GAT"])
def test_contexts(name, context, at, values):
    adjacency = sparse(at, values.float())
    assert_same_in_context(context, model_of(name, torch.float32), torch.randn(NODES, WIDTH), adjacency)


def _second_derivatives(conv, x, values, edges_of):
    """Of squares of the gradients of a layer's cubes."""
    x, values = (each.clone().requires_grad_() for each in (x, values))
    cubes = conv(x, *edges_of(values)).pow(3).sum()
    first = torch.autograd.grad(cubes, [x, values], create_graph=True)
    return torch.autograd.grad(sum(each.pow(2).sum() for each in first), [x, values])


def test_second_derivatives_are_those_of_an_edge_index(at, values):
    """Torch_sparse takes the first ones for constants, without a word."""
    conv, x = gnn.GraphConv(WIDTH, 4).double(), torch.randn(NODES, WIDTH).double()
    expected = _second_derivatives(conv, x, values, lambda v: (at.flip(0), v))
    with onehop.patch():
        found = _second_derivatives(conv, x, values, lambda v: (sparse(at, v),))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "max", "min"])
@pytest.mark.parametrize("kind", ["no values", "values", "gradient"])
def test_spmm_called_directly(kind, reduce, at, values, gradients_of):
    given = {"no values": None, "values": values, "gradient": values.clone().requires_grad_()}[kind]
    adjacency, x = sparse(at, given), torch.randn(NODES, WIDTH).double()
    call = lambda m, x: m(spmm(adjacency, x, reduce))  # noqa: E731, a test's own
    expected = gradients_of(torch.nn.Identity(), call, x=x)
    with onehop.patch():
        import torch_geometric.utils

        patched = lambda m, x: m(torch_geometric.utils.spmm(adjacency, x, reduce))  # noqa: E731
        assert_same(gradients_of(torch.nn.Identity(), patched, x=x), expected)


@pytest.mark.parametrize("name", ["GCN", "SAGE max", "GAT", "Simple mean"])
def test_explain_names_what_runs(name, at, values):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double()
    report = str(onehop.explain(model, x, sparse(at, values)))
    assert "SparseTensor" not in report
    assert "max" in report or "sum" in report or "mean" in report


@pytest.mark.parametrize("as_tensor", [True, False])
def test_pan_multiplies_by_a_matrix_that_it_learns(
    as_tensor, edge_index, gradients_of, took_fast_path, in_doubles
):
    model, x = gnn.PANConv(WIDTH, 4, filter_size=2), torch.randn(NODES, WIDTH)
    edges = edge_index if as_tensor else sparse(edge_index.flip(0))
    call = lambda m, x: m(x, edges)[0]  # noqa: E731, a test's own
    expected = gradients_of(model, call, x=x)
    assert "gradient of weight" in expected
    with onehop.patch():
        assert_same(gradients_of(model, call, x=x), expected)
        assert took_fast_path(call, model, x=x) == [None]


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_complex_values_lose_their_imaginary_part_as_in_pyg(at):
    values = torch.ones(at.size(1), dtype=torch.complex128)
    values[3] = 2 + 1j
    adjacency, x = sparse(at, values), torch.randn(NODES, WIDTH).double()
    expected = gnn.SimpleConv()(x, adjacency)
    with onehop.patch():
        torch.testing.assert_close(gnn.SimpleConv()(x, adjacency), expected)
