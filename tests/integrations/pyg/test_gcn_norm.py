"""GCN's normalisation of edges without weight: PyG's tensors, bit by bit."""

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.nn.conv import gcn_conv

import onehop
from onehop import thresholds
from onehop.integrations.pyg.edges import rewrites
from onehop.integrations.pyg.edges.listed import SymmetricKey, symmetric_of
from onehop.integrations.rows import replacing
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
    expected = gcn_conv.gcn_norm(edge_index, *arguments)
    with onehop.patch(), thresholds.lifted():
        for _ in range(2):
            found = gcn_conv.gcn_norm(edge_index, *arguments)
            for ours, theirs in zip(found, expected, strict=True):
                assert ours.dtype is theirs.dtype
                assert torch.equal(ours, theirs)


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
    monkeypatch.setattr("onehop.integrations.pyg.edges.listed._EXACT_DEGREES", 100)
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
