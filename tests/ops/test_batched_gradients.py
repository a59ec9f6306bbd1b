"""Gradients of a batch of vectors at once: narrow batches are folded, and what is refused."""

from functools import partial

import pytest
import torch

import onehop
from onehop import BackendError, Graph, thresholds
from onehop.ops import library
from tests.ops.checking import EXACT, On, assert_close, batched, one_by_one
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise


def test_the_older_way_refuses_a_batch_of_none():
    with pytest.raises(BackendError, match=r"take torch\.vmap"):
        torch._vmap_internals._vmap(On("sum", "multi_edges").fast)(torch.zeros(0, 3, 2, dtype=torch.float64))


@pairwise(heads=[1, 2], batch=[1, 100, 300], dtype=[torch.float64, torch.bfloat16], way=["older", "newer"])
def test_narrow_features_are_folded(way, dtype, batch, heads, monkeypatch):
    graph = Graph.from_edge_index(HOSTILE["random"][0], 40)
    x = torch.randn(40, heads, 2, dtype=dtype, requires_grad=True)
    weight = torch.rand(300, heads, dtype=dtype)
    pulled = [torch.randn(batch, 40, heads, 2, dtype=dtype)]
    calls = []
    run = library.run_on_backend
    monkeypatch.setattr(
        library,
        "run_on_backend",
        lambda graph, call, like: calls.append(like.size(1)) or run(graph, call, like),
    )
    # Heads as narrow as these run as messages otherwise.
    with thresholds.changed(columns_of_a_head=1):
        found = batched(way, lambda x: (onehop.aggregate(graph, x, weight),), [x], pulled)
    assert sum(calls) == 2 * heads * (1 + batch)
    assert len(calls) == 1 + -(-batch // (256 // (2 * heads)))
    expected = one_by_one(lambda x: (onehop.aggregate(graph, x, weight),), [x], pulled)
    tolerance = EXACT if dtype is torch.float64 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(found[0], expected[0], **tolerance)


@pytest.mark.parametrize("way", ["older", "newer"])
def test_operands_that_nothing_depends_on(way):
    on = On("sum, weighted", "self_loops")
    other = torch.randn(4, dtype=torch.float64, requires_grad=True)
    (out,), (pulled,), (x, weight) = on.fast(*on.leaves), on.pulled(3), on.leaves
    grad = partial(torch.autograd.grad, out, retain_graph=True)
    if way == "older":
        found = grad([x, other, weight], pulled, is_grads_batched=True, allow_unused=True)
        assert found[1] is None
        found = [found[0], found[2]]
    else:
        found = list(torch.vmap(lambda each: grad([x, weight], each))(pulled))
    assert_close(found, one_by_one(on.fast, on.leaves, [pulled]))
