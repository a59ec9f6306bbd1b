"""Sparse matrices that are written to, replaced or freed: what was kept of them is never out of date."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.nn.conv import gat_conv, gcn_conv
from torch_geometric.transforms import ToSparseTensor

import onehop
from onehop.graph.identity import CACHE
from onehop.graph.lending import is_shared
from onehop.integrations.pyg.edges import matrices
from onehop.integrations.pyg.edges.adjacency import Adjacency
from onehop.integrations.torch.matrix_edges import recognised
from tests.integrations.pyg.adjacencies import WARNINGS, matrix, model_of
from tests.integrations.pyg.layers import NODES, WIDTH
from tests.integrations.same import BITS, SINGLE, assert_same, fast, forms, noted, same, same_after
from tests.pairs import pairwise

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]


CHANGES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "values": lambda adjacency, held: adjacency.values().mul_(2),
    "one value": lambda adjacency, held: adjacency.values()[3].fill_(7),
    "behind its back": lambda adjacency, held: held[3].fill_(7),
    "past the counter": lambda adjacency, held: adjacency.values().data[3].fill_(7),
}


def assert_noticed(run: Callable[[], Tensor], change: Callable[[], object]) -> None:
    """A change of what a layer was given before changes its results, to PyG's."""
    run = torch.no_grad()(run)
    before = run()
    same_after(run, change, times=2)
    assert not torch.allclose(run(), before)


# The normalisation of twice the values is the same.
@pairwise(
    name=["SAGE mean", "GCN", "GCN without loops", "SG", "GIN", "LE"],
    change=list(CHANGES),
    ones=[True, False],
    where=lambda name, change: (name, change) != ("GCN without loops", "values"),
)
def test_changed_values_are_noticed(ones, name, change, at, values):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double()
    held = torch.ones_like(values) if ones else values.clone()
    adjacency = matrix("csr", at, held)
    assert_noticed(lambda: model(x, adjacency), lambda: CHANGES[change](adjacency, held))


EDITS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "through the matrix": lambda adjacency, col: adjacency.col_indices()[::7].fill_(1),
    "through the array": lambda adjacency, col: col.data[::7].fill_(1),
    "pointers": lambda adjacency, col: adjacency.crow_indices()[1:4].sub_(1),
}


@pytest.mark.parametrize("way", EDITS)
@pytest.mark.parametrize("name", ["SAGE sum", "GCN", "GCN without loops"])
def test_changed_edges_are_noticed(name, way, at, values):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double()
    adjacency = matrix("csr", at, torch.ones_like(values))
    col = adjacency.col_indices()
    assert_noticed(lambda: model(x, adjacency), lambda: EDITS[way](adjacency, col))


def test_a_new_matrix_of_arrays_that_were_rewritten_is_another_graph(values):
    """Matrices of the same arrays have the same addresses, and often the same id, but not the same edges."""
    count = 1 << 16  # more than a sample looks at
    rowptr, col = torch.arange(0, count + 1, count // NODES + 1), torch.randint(0, NODES, (count,))
    rowptr = torch.cat([rowptr, torch.tensor([count])]).unique()
    ones, x = torch.ones(count), torch.randn(NODES, 3)
    conv = gnn.SimpleConv()
    with onehop.patch():
        for place in range(5):
            adjacency = torch.sparse_csr_tensor(rowptr, col, ones, (len(rowptr) - 1, NODES))
            found = conv((x, None), adjacency)
            with onehop.patch().paused():
                torch.testing.assert_close(found, conv((x, None), adjacency), rtol=1e-4, atol=1e-3)
            del adjacency
            col[place * 1000 + 1] = (col[place * 1000 + 1] + 1) % NODES


def test_matrices_of_the_same_arrays_share_a_graph(at, values):
    x = torch.randn(NODES, WIDTH)
    first = matrix("csr", at, values.float())
    with onehop.patch():
        conv = gnn.SimpleConv()
        conv(x, first)
        entries_before = CACHE.info().entries
        for scale in (1, 2, 3):
            other = torch.sparse_csr_tensor(
                first.crow_indices(), first.col_indices(), values.float() * scale, first.shape
            )
            torch.testing.assert_close(conv(x, other), torch.sparse.mm(other, x))
    assert CACHE.info().entries == entries_before


@pytest.mark.parametrize("name", ["GCN", "GCN without loops", "SAGE mean"])
@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_what_is_kept_goes_with_the_matrix(layout, name, at, values):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double().requires_grad_()
    onehop.clear_cache()
    with onehop.patch():
        adjacency = matrix(layout, at, values.clone())
        model(x, adjacency).sum().backward()
        assert CACHE.info().entries > 0
        del adjacency
        gc.collect()
        assert CACHE.info().entries == 0


def test_a_normalised_matrix_is_the_callers_own(at, values):
    adjacency = matrix("csr", at, values)
    expected = gcn_conv.gcn_norm(adjacency, None, NODES)[0].to_dense()
    with onehop.patch():
        first, weight = gcn_conv.gcn_norm(adjacency, None, NODES)
        assert weight is None
        second = gcn_conv.gcn_norm(adjacency, None, NODES)[0]
        assert first is not second
        torch.testing.assert_close(first.to_dense(), expected)
        first.values().zero_()
        first.col_indices().zero_()
        third = gcn_conv.gcn_norm(adjacency, None, NODES)[0]
        torch.testing.assert_close(second.to_dense(), expected)
        torch.testing.assert_close(third.to_dense(), expected)
        conv, x = gnn.SimpleConv(), torch.randn(NODES, WIDTH).double()
        torch.testing.assert_close(conv(x, third), expected @ x)
        assert not conv(x, first).any()


def test_the_normalisation_of_ones_needs_no_weights(at, values):
    simple = at[:, at[0] != at[1]]
    adjacency = matrix("csr", simple, torch.ones(simple.size(1)).double())
    conv, x = gnn.GCNConv(WIDTH, 4).double(), torch.randn(NODES, WIDTH).double().requires_grad_()
    assert_same(conv(x, adjacency), conv(x, simple.flip(0)))
    assert forms(fast(lambda: conv(x, adjacency))) == ["scaled source, scaled destination"]


def test_to_sparse_tensor(edge_index):
    x = torch.randn(NODES, WIDTH)
    data = ToSparseTensor()(Data(x=x, edge_index=edge_index, num_nodes=NODES))
    conv = gnn.GCNConv(WIDTH, 4)
    fast(lambda: conv(x, data.adj_t), **SINGLE)


def test_matrices_are_kept_for_what_they_were_made_with(at, values):
    adjacency, x = matrix("csr", at, values), torch.randn(NODES, WIDTH).double()
    convs = [gnn.GCNConv(WIDTH, 4, improved=each).double() for each in (False, True)]
    same(lambda: [conv(x, adjacency) for conv in convs])


def test_loops_are_kept_for_what_they_weigh(at, values):
    adjacency = matrix("csr", at, values)
    weight = torch.tensor(4.0).double()

    def made(fill: object) -> Tensor:
        return gat_conv.add_self_loops(adjacency, None, fill, NODES)[0].to_dense()

    same(lambda: [made(fill) for fill in (1.0, 2.0, "mean", None)], **BITS)
    with onehop.patch():
        first = made(weight)
        weight.mul_(2)
        second = made(weight)
    torch.testing.assert_close(first.diagonal() + 4, second.diagonal())


def test_loops_are_made_once(at, values, monkeypatch):
    adjacency, made = matrix("csr", at, values), noted(monkeypatch, Adjacency, "_copied")
    with onehop.patch():
        for _ in range(3):
            gat_conv.add_self_loops(adjacency, None, 1.0, NODES)
    assert len(made) == 1


def test_an_unchanged_matrix_is_normalised_without_a_look_at_its_edges(at, values, monkeypatch):
    adjacency, x = matrix("csr", at, values), torch.randn(NODES, WIDTH).double()
    conv = gnn.GCNConv(WIDTH, 4).double()
    with onehop.patch():
        for _ in range(2):
            conv(x.requires_grad_(), adjacency)
        looked = noted(monkeypatch, matrices, "fingerprint", lambda array: array.numel())
        conv(x, adjacency)
    # The values alone.
    assert looked[:1] == [at.size(1)]
    assert all(count >= at.size(1) for count in looked)
    assert NODES + 1 not in looked


def test_a_normalisation_without_loops_shares_the_matrixs_arrays(at, values):
    adjacency = matrix("csr", at, values)
    with onehop.patch():
        kept = gcn_conv.gcn_norm(adjacency, None, NODES, add_self_loops=False)[0]
        others = gcn_conv.gcn_norm(adjacency, None, NODES, add_self_loops=True)[0]
    assert kept.col_indices().data_ptr() == adjacency.col_indices().data_ptr()
    assert others.col_indices().data_ptr() != adjacency.col_indices().data_ptr()


def test_arrays_stay_shared_when_their_graph_is_made_anew(at, values):
    adjacency, conv = matrix("csr", at, values), gnn.SimpleConv()
    with onehop.patch():
        edges = recognised(adjacency).edges
        kept = gcn_conv.gcn_norm(adjacency, None, NODES)[0]
        onehop.clear_cache()
        x = torch.randn(NODES, WIDTH).double()
        torch.testing.assert_close(conv(x, kept), kept.to_dense() @ x)
    assert edges.derived  # what is kept has lived all the time
    assert is_shared(kept.col_indices())


def test_normalised_values_on_other_edges_are_weights(at, values):
    simple = at[:, at[0] != at[1]]
    ones = torch.ones(simple.size(1)).double()
    adjacency = matrix("csr", simple, ones)
    with onehop.patch():
        kept = gcn_conv.gcn_norm(adjacency, None, NODES, add_self_loops=False)[0]
        others = torch.sparse_csr_tensor(
            kept.crow_indices(), kept.col_indices().flip(0), kept.values(), kept.shape
        )
        assert is_shared(others.values())
        x = torch.randn(NODES, WIDTH).double()
        for each in (kept, others):
            torch.testing.assert_close(gnn.SimpleConv()(x, each), each.to_dense() @ x)


@pytest.mark.parametrize("loops", [True, False])
def test_arrays_of_two_kept_matrices_are_edges_of_their_own(loops, at, values):
    others = at.flip(0)[:, (NODES * at[1] + at[0]).argsort()]
    x = torch.randn(NODES, WIDTH).double()
    with onehop.patch():
        one, two = (
            gcn_conv.gcn_norm(matrix("csr", each, values), None, NODES, add_self_loops=loops)[0]
            for each in (at, others)
        )
        mixed = torch.sparse_csr_tensor(two.crow_indices(), one.col_indices(), one.values(), one.shape)
        assert is_shared(mixed.values())
        for each in (one, mixed, two, one, mixed):
            torch.testing.assert_close(gnn.SimpleConv()(x, each), torch.sparse.mm(each, x))
