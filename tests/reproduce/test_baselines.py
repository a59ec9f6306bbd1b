"""The layers' baselines: the same numbers as PyG's own layers, results and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor

from onehop.reproduce.io_aware import baselines, layers

FAMILIES = ("GATv2", "Graph Transformer", "min", "sum (GCN)")
# A self-loop, an edge twice, a node without edges.
EDGES = torch.tensor([[0, 1, 2, 2, 3, 3, 4, 1], [1, 1, 0, 3, 4, 4, 0, 3]])
NODES = 6


def passes(layer: Any, forward: baselines.Forward) -> dict[str, Tensor]:
    """The result, and the gradients of the features and all parameters."""
    layer.zero_grad()
    x = torch.randn(NODES, 64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    out = forward(x)
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    named = {"features": x, **dict(layer.named_parameters())}
    return {"out": out.detach(), **{name: each.grad for name, each in named.items() if each.grad is not None}}


def assert_same(layer: Any, forward: baselines.Forward) -> None:
    expected, found = passes(layer, lambda x: layer(x, EDGES)), passes(layer, forward)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_sparse_products_give_pygs_numbers_where_there_are_any(family: str) -> None:
    layer = layers._families()[family]()
    forward = baselines.by_sparse_products(layer, baselines.Edges.of(layer, EDGES, NODES))
    assert (forward is None) == (family in ("GATv2", "Graph Transformer"))
    if forward is not None:
        assert_same(layer, forward)


@pytest.mark.parametrize("family", FAMILIES)
def test_dgl_gives_pygs_numbers(family: str) -> None:
    if (reason := baselines.why_not_dgl()) is not None:
        pytest.skip(reason)
    layer = layers._families()[family]()
    assert_same(layer, baselines.by_dgl(layer, baselines.Edges.of(layer, EDGES, NODES)))


def test_the_matrix_of_the_gradient_is_the_transposed_one() -> None:
    weight = torch.arange(1.0, 9.0)
    edges = baselines.Edges(EDGES, NODES, weight)
    dense = torch.zeros(NODES, NODES).index_put_((EDGES[1], EDGES[0]), weight, accumulate=True)
    assert torch.equal(edges.matrix().to_dense(), dense)
    assert torch.equal(edges.matrix(transposed=True).to_dense(), dense.T)
