"""SparseTensors that are written to, derived from each other, or freed: nothing kept is out of date."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.nn.conv import gcn_conv
from torch_geometric.transforms import ToSparseTensor

import onehop
from onehop.graph.identity import CACHE
from onehop.graph.lending import is_shared
from onehop.integrations.pyg.edges.adjacency import Adjacency
from tests.integrations.pyg.adjacencies import WARNINGS, model_of
from tests.integrations.pyg.layers import NODES, WIDTH
from tests.integrations.same import assert_same

torch_sparse = pytest.importorskip(
    "torch_sparse", reason="torch_sparse is not installed: pip install torch_sparse"
)
from tests.integrations.pyg.test_sparse_tensors import by_pointers, sparse  # noqa: E402, needs torch_sparse

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]


def _values(adjacency: Any) -> None:
    adjacency.storage._value.mul_(2)
    adjacency.storage._value[::3] += 1


def _one_value(adjacency: Any) -> None:
    adjacency.storage._value[3] = 7


def _past_the_counter(adjacency: Any) -> None:
    adjacency.storage._value.data[3] = 7


def _other_values(adjacency: Any) -> None:
    adjacency.set_value_(torch.linspace(1, 3, adjacency.nnz()).double(), layout="coo")


def _last_of_rows(adjacency: Any) -> Tensor:
    """Entries that stay in order where they get the last column, to which no row belongs."""
    return adjacency.storage.rowptr()[1:-1].unique()[1:] - 1


def _columns(adjacency: Any) -> None:
    adjacency.storage._col[_last_of_rows(adjacency)] = NODES - 1


def _columns_past_the_counter(adjacency: Any) -> None:
    adjacency.storage._col.data[_last_of_rows(adjacency)] = NODES - 1


CHANGES = {
    "values": _values,
    "one value": _one_value,
    "past the counter": _past_the_counter,
    "other values": _other_values,
    "columns": _columns,
    "columns past the counter": _columns_past_the_counter,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ones", [True, False])
@pytest.mark.parametrize("name", ["Simple mean", "GCN", "GCN without loops", "SG", "LE", "Simple self loop"])
def test_changes_are_noticed(name, ones, change, at, values):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double()
    adjacency = sparse(at, torch.ones_like(values) if ones else values.clone())
    with onehop.patch(), torch.no_grad():
        first = model(x, adjacency)
        again = model(x, adjacency)
        CHANGES[change](adjacency)
        found = model(x, adjacency)
    with torch.no_grad():
        expected = model(x, adjacency)
    assert torch.equal(first, again)
    assert not torch.allclose(found, first)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("make", [sparse, by_pointers])
def test_changed_rows_are_noticed(make, at):
    conv, x = gnn.SimpleConv(), torch.randn(NODES, WIDTH).double()
    adjacency = make(at)
    with onehop.patch():
        first = conv(x, adjacency)
        if make is sparse:
            adjacency.storage._rowptr = None
            adjacency.storage._row[-3:] = NODES - 1
        else:
            adjacency.storage._rowptr[1:4] -= 1
        found = conv(x, adjacency)
    assert not torch.allclose(found, first)
    torch.testing.assert_close(found, conv(x, adjacency))


def test_columns_with_other_rows_are_another_graph(at):
    conv, x = gnn.SimpleConv(), torch.randn(NODES, WIDTH).double()
    one = sparse(at)
    rows = at[0].clone()
    rows[-5:] = NODES - 1
    other = torch_sparse.SparseTensor(
        row=rows, col=one.storage._col, sparse_sizes=(NODES, NODES), is_sorted=True
    )
    assert other.storage._col is one.storage._col
    expected = [conv(x, one), conv(x, other)]
    with onehop.patch():
        for _ in range(2):
            torch.testing.assert_close(conv(x, one), expected[0])
            torch.testing.assert_close(conv(x, other), expected[1])


@pytest.mark.parametrize("name", ["GCN", "GCN without loops", "Simple mean", "GAT"])
@pytest.mark.parametrize("has_values", [True, False])
def test_what_is_kept_goes_with_the_matrix(has_values, name, at, values):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double().requires_grad_()
    onehop.clear_cache()
    with onehop.patch():
        adjacency = sparse(at, values.clone() if has_values else None)
        model(x, adjacency).sum().backward()
        assert CACHE.info().entries > 0
        del adjacency
        gc.collect()
        assert CACHE.info().entries == 0


DERIVED: dict[str, Callable[[Any], Any]] = {
    "gcn_norm": lambda a: gcn_conv.gcn_norm(a, None, NODES),
    "gcn_norm without loops": lambda a: gcn_conv.gcn_norm(a, None, NODES, add_self_loops=False),
    "gcn_norm improved": lambda a: gcn_conv.gcn_norm(a, None, NODES, improved=True, dtype=torch.float64),
    "set_diag": lambda a: torch_sparse.set_diag(a),
    "set_diag above": lambda a: torch_sparse.set_diag(a, k=1),
    "set_diag of values": lambda a: torch_sparse.set_diag(a, torch.arange(NODES).double()),
    "fill_diag": lambda a: torch_sparse.fill_diag(a, 3.0),
    "fill_diag below": lambda a: torch_sparse.fill_diag(a, 0.5, k=-2),
}


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("kind", ["no values", "values", "gradient"])
@pytest.mark.parametrize("make", [sparse, by_pointers])
def test_what_is_derived_is_torch_sparses_and_the_callers_own(make, kind, name, at, values):
    given = {"no values": None, "values": values, "gradient": values.clone().requires_grad_()}[kind]
    adjacency, run = make(at, given), DERIVED[name]
    expected = run(adjacency)
    with onehop.patch():
        first = run(adjacency)
        for made in (first, run(adjacency)):
            assert made.sparse_sizes() == expected.sparse_sizes()
            for ours, theirs in zip(made.coo(), expected.coo(), strict=True):
                assert (ours is None) is (theirs is None)
                if theirs is not None:
                    assert torch.equal(ours, theirs)
                    assert ours.requires_grad is theirs.requires_grad
            assert torch.equal(made.csr()[0], expected.csr()[0])
        if first.storage._value is not None and kind != "gradient":
            # Whoever writes to one changes it alone.
            first.storage._value.fill_(9)
            assert torch.equal(run(adjacency).storage._value, expected.storage._value)
        if first.storage._col is not adjacency.storage._col:
            first.storage._col.fill_(0)
            assert torch.equal(run(adjacency).storage._col, expected.storage._col)


@pytest.mark.parametrize("name", ["gcn_norm", "gcn_norm without loops", "set_diag", "fill_diag"])
def test_it_is_made_once(name, at, values, monkeypatch):
    made: list[int] = []
    real = Adjacency._copied
    monkeypatch.setattr(Adjacency, "_copied", lambda *given: made.append(1) or real(*given))
    adjacency = sparse(at, values)
    with onehop.patch():
        for _ in range(3):
            DERIVED[name](adjacency)
    assert made == [1]


def test_a_normalisation_of_ones_needs_no_weight(at):
    from onehop.integrations import reports

    conv, x = gnn.GCNConv(WIDTH, 4), torch.randn(NODES, WIDTH)
    adjacency = sparse(at)
    with onehop.patch(), reports.recorded() as calls:
        normalised = gcn_conv.gcn_norm(adjacency, None, NODES, dtype=torch.float32)
        assert is_shared(normalised.storage._value)
        for _ in range(2):
            conv(x, adjacency)
    assert {call.form.split(", ")[0] for call in calls} == {"scaled source"}


def _set(adjacency: Any) -> Any:
    return adjacency.set_diag()


def _fill(adjacency: Any) -> Any:
    return adjacency.fill_diag(2.0)


def _turned(adjacency: Any) -> Any:
    return adjacency.t()


def _by_hand(adjacency: Any) -> Any:
    """As OGB's full-batch examples normalise."""
    adjacency = adjacency.set_diag()
    scale = adjacency.sum(dim=1).pow(-0.5)
    scale[scale == float("inf")] = 0
    return scale.view(-1, 1) * adjacency * scale.view(1, -1)


@pytest.mark.parametrize("prepare", [_set, _fill, _turned, _by_hand])
@pytest.mark.parametrize("has_values", [True, False])
@pytest.mark.parametrize("name", ["SAGE mean", "GCN unnormalised", "GIN max", "GAT without loops"])
def test_what_users_do_before_the_layer(name, has_values, prepare, at, values, gradients_of, took_fast_path):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double()
    adjacency = prepare(sparse(at, values if has_values else None))
    expected = gradients_of(model, lambda m, x: m(x, adjacency), x=x)
    with onehop.patch():
        again = prepare(sparse(at, values if has_values else None))
        for edges in (adjacency, again):
            assert_same(gradients_of(model, lambda m, x, e=edges: m(x, e), x=x), expected, 1e-6, 1e-6)
            assert took_fast_path(model, x, edges) == [None]


def test_the_transform_of_pyg(edge_index, took_fast_path):
    data = Data(x=torch.randn(NODES, WIDTH), edge_index=edge_index, num_nodes=NODES)
    data = ToSparseTensor()(data)
    model = gnn.GCN(WIDTH, 8, num_layers=2, out_channels=3)
    expected = model(data.x, data.adj_t)
    with onehop.patch():
        torch.testing.assert_close(model(data.x, data.adj_t), expected)
        assert took_fast_path(model, data.x, data.adj_t) == [None, None]


@pytest.mark.parametrize("name", ["GAT", "GATv2", "Transformer"])
def test_attention_weights_that_are_asked_for(name, at):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double()
    adjacency = sparse(at)

    def run() -> dict[str, Tensor]:
        out, made = model(x, adjacency, return_attention_weights=True)
        return {"out": out.detach(), "row": made.coo()[0], "col": made.coo()[1], "weights": made.coo()[2]}

    expected = run()
    with onehop.patch():
        assert_same(run(), {key: value.detach() for key, value in expected.items()})
