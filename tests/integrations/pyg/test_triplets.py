"""Pairs of edges that meet, without torch-sparse."""

import pytest
import torch
import torch_geometric.typing
from torch_geometric.nn.models import DimeNetPlusPlus, dimenet, gnnff

import onehop

pytestmark = pytest.mark.skipif(torch_geometric.typing.WITH_TORCH_SPARSE, reason="PyG has torch-sparse")


def naive(edge_index, num_nodes):
    edges = list(zip(*edge_index.tolist(), strict=True))
    found = [
        (i, j, k, kj, ji)
        for ji, (j, i) in enumerate(edges)
        for k, kj in sorted((k, kj) for kj, (k, target) in enumerate(edges) if target == j)
        if k != i
    ]
    return [list(each) for each in zip(*found, strict=True)]


@pytest.mark.parametrize("edges", [0, 1, 60])
def test_pairs_of_edges(edges):
    # Loops and parallel edges among them, and nodes without edges.
    edge_index = torch.randint(0, 12, (2, edges))
    with pytest.raises(ImportError, match="torch-sparse"):
        dimenet.triplets(edge_index, 15)
    with onehop.patch():
        assert gnnff.triplets is dimenet.triplets
        found = dimenet.triplets(edge_index, 15)
    assert torch.equal(found[0], edge_index[1])
    assert torch.equal(found[1], edge_index[0])
    assert [each.tolist() for each in found[2:]] == (naive(edge_index, 15) or [[]] * 5)


def test_molecules():
    z, pos = torch.randint(1, 10, (20,)), torch.randn(20, 3) * 3
    batch = torch.arange(2).repeat_interleave(10)
    model = DimeNetPlusPlus(
        hidden_channels=8, out_channels=1, num_blocks=1, int_emb_size=4, basis_emb_size=4,
        out_emb_channels=8, num_spherical=3, num_radial=3, output_initializer="glorot_orthogonal",
    )  # fmt: skip
    with onehop.patch():
        out = model(z, pos, batch)
        assert out.shape == (2, 1)
        assert (out != 0).all()
        # Molecules do not see each other.
        torch.testing.assert_close(model(z[:10], pos[:10], batch[:10]), out[:1])
