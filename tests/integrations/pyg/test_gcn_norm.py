"""GCN's normalisation of edges: PyG's tensors, bit by bit, and what is kept of them."""

from types import SimpleNamespace

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.nn.conv import gcn_conv

import onehop
from onehop import thresholds
from onehop.integrations.pyg.edges import rewrites
from onehop.integrations.pyg.edges.kept import SymmetricKey, symmetric_of
from onehop.integrations.rows import replacing
from tests.integrations.same import BITS, SINGLE, fast, same, same_after
from tests.pairs import pairwise

NODES = 50


def edges(loops: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    # Nodes 40 and later have no edge; node 7 has more than bfloat16 can count.
    edge_index = torch.randint(40, (2, 700), generator=generator)
    edge_index[1, :300] = 7
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    if loops:
        edge_index[0, ::9] = edge_index[1, ::9]
    return edge_index


@pairwise(
    loops=[False, True],
    improved=[False, True],
    add_self_loops=[True, False],
    flow=["source_to_target", "target_to_source"],
    dtype=[None, torch.float32, torch.float64, torch.bfloat16, torch.float16],
)
def test_the_tensors_are_those_of_pyg(loops, improved, add_self_loops, flow, dtype):
    edge_index = edges(loops)
    arguments = (None, NODES, improved, add_self_loops, flow, dtype)
    with thresholds.lifted():
        same(lambda: gcn_conv.gcn_norm(edge_index, *arguments), **BITS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize("loops", [True, False])
def test_products_of_the_scale_are_the_weights_of_pyg(loops, forwards, add_self_loops, dtype):
    edge_index = edges(loops)
    flow = "source_to_target" if forwards else "target_to_source"
    theirs, weight = gcn_conv.gcn_norm(edge_index, None, NODES, False, add_self_loops, flow, dtype)
    found = symmetric_of(edge_index, SymmetricKey(NODES, add_self_loops, forwards, dtype))
    assert found is not None
    order = slice(None) if found.graph.perm is None else found.graph.perm.long()
    source, target = (theirs if forwards else theirs.flip(0))[:, order]
    assert torch.equal(found.graph.col.long(), source)
    assert torch.equal(torch.arange(NODES).repeat_interleave(found.graph.in_degrees), target)
    assert torch.equal(found.scale[source] * found.scale[target], weight[order])
    assert symmetric_of(edge_index, SymmetricKey(NODES, add_self_loops, forwards, dtype)) is found


def test_more_edges_than_float32_counts_are_left_to_pyg(monkeypatch):
    monkeypatch.setattr("onehop.integrations.pyg.edges.kept._EXACT_DEGREES", 100)
    assert symmetric_of(edges(False), SymmetricKey(NODES, True, True, torch.float32)) is None


@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_weighted_edges_get_their_loops_from_memory(improved, flow):
    edge_index = edges(True)
    weight = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(2), requires_grad=True)
    arguments = (NODES, improved, True, flow, torch.float32)
    expected = gcn_conv.gcn_norm(edge_index, weight, *arguments)
    (expected_grad,) = torch.autograd.grad(expected[1].square().sum(), weight)
    asked = []

    def theirs(*given):
        asked.append(given)
        return gcn_conv.gcn_norm(*given)

    ours = replacing(SimpleNamespace(gcn_norm=theirs), "gcn_norm", rewrites.gcn_norm).ours
    with onehop.patch(), thresholds.lifted():
        for _ in range(2):
            found = ours(edge_index, weight, *arguments)
            for mine, other in zip(found, expected, strict=True):
                assert torch.equal(mine, other)
            (grad,) = torch.autograd.grad(found[1].square().sum(), weight)
            torch.testing.assert_close(grad, expected_grad)
        # PyG normalises edges that have their loops already, the same tensor each time.
        (first, *_, loops, _, _), (second, *_) = asked
        assert first is not edge_index
        assert first.data_ptr() == second.data_ptr() or torch.equal(first, second)
        assert loops is False
        # A matrix of weights is PyG's, whatever it makes of it.
        asked.clear()
        column = weight.detach().unsqueeze(1)
        of_column = gcn_conv.gcn_norm(edge_index, column, *arguments)
        for mine, other in zip(ours(edge_index, column, *arguments), of_column, strict=True):
            assert torch.equal(mine, other)
        assert asked[0][0] is edge_index
        assert asked[0][1] is column


# What is remembered

OPTIONS = {"edge_weight": None, "num_nodes": 20, "dtype": torch.float32}


def test_the_last_of_several_loops_gives_the_weight():
    edge_index = torch.tensor([[0, 1, 1, 2, 0], [1, 1, 1, 0, 2]])
    weight = torch.tensor([1.0, 5.0, 3.0, 2.0, 1.0])
    conv, x = gnn.GCNConv(4, 4), torch.randn(3, 4)
    fast(lambda: conv(x, edge_index, weight), **SINGLE)
    same(lambda: gcn_conv.gcn_norm(edge_index, weight, 3), **BITS)


@pytest.mark.usefixtures("ordinary_bounds")
def test_the_normalisation_is_remembered_and_its_graph_too(edge_index):
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    with onehop.patch():
        conv(x, edge_index)
        before = onehop.cache_info()
        conv(x, edge_index)
        after = onehop.cache_info()
    assert after.misses == before.misses
    assert after.entries == before.entries


def test_with_weights_the_structure_alone_is_remembered(edge_index):
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    with onehop.patch():
        first = conv(x, edge_index, torch.full((90,), 0.5))
        second = conv(x, edge_index, torch.full((90,), 3.0))
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, conv(x, edge_index, torch.full((90,), 3.0)))


def test_writing_to_the_derived_tensors_is_noticed(edge_index):
    conv, x = gnn.GCNConv(4, 4), torch.randn(20, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        edges, weight = gcn_conv.gcn_norm(edge_index, **OPTIONS)
        weight.mul_(2)
        torch.testing.assert_close(conv(x, edge_index), expected)
        edges, weight = gcn_conv.gcn_norm(edge_index, **OPTIONS)
        out = conv.propagate(edges, x=x, edge_weight=weight)
        edges[:, 0] = 0
        changed = conv.propagate(edges, x=x, edge_weight=weight)
        assert not torch.allclose(out, changed)
        torch.testing.assert_close(conv(x, edge_index), expected)
        _, weight = gcn_conv.gcn_norm(edge_index, **OPTIONS)
        weight.requires_grad_()
        _, fresh = gcn_conv.gcn_norm(edge_index, **OPTIONS)
        assert not fresh.requires_grad


def test_a_weight_from_memory_with_other_edges(edge_index):
    x = torch.randn(20, 4)
    conv = gnn.GCNConv(4, 4)
    with onehop.patch():
        edges, weight = gcn_conv.gcn_norm(edge_index, **OPTIONS)
        other = edges.flip(1)
        found = conv.propagate(other, x=x, edge_weight=weight)
    torch.testing.assert_close(found, conv.propagate(other, x=x, edge_weight=weight))


@pytest.mark.parametrize("kind", [gnn.GCNConv, gnn.SAGEConv, gnn.ClusterGCNConv])
def test_editing_the_edges_in_place_is_noticed(kind, edge_index):
    conv, x = kind(4, 4), torch.randn(20, 4)
    same_after(lambda: conv(x, edge_index), lambda: edge_index[0, :10].fill_(2), **SINGLE)


def test_edges_made_in_inference_mode():
    conv = gnn.GCNConv(4, 4)
    with torch.inference_mode():
        edge_index, x = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 4)
        fast(lambda: conv(x, edge_index), **SINGLE)
        same_after(lambda: conv(x, edge_index), lambda: edge_index[0].fill_(2), **SINGLE)
