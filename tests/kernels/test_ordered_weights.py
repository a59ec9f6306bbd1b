"""Constant weights are kept in the graph's order, and never outlive a change of their contents."""

import pytest
import torch
from torch import Tensor

from onehop import Graph, aggregate, cache_info, clear_cache, native, thresholds
from onehop.reference import aggregate as reference


@pytest.fixture
def edges() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(500, (2, thresholds.ORDINARY.ordered_edges + 3), generator=generator)


@pytest.fixture
def graph(edges: Tensor) -> Graph:
    clear_cache()
    return Graph.from_edge_index(edges, num_nodes=500)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(500, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def weights(graph: Graph) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.rand(graph.num_edges, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_every_sighting_gives_the_same(graph: Graph, edges: Tensor, x: Tensor, reduce: str) -> None:
    weight = weights(graph)
    first, second, third = (aggregate(graph, x, weight, reduce) for _ in range(3))
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    torch.testing.assert_close(first, reference(edges, x, 500, weight, reduce))


def test_backward_reads_the_transposed_order(graph: Graph, edges: Tensor, x: Tensor) -> None:
    weight = weights(graph)
    grads = []
    for _ in range(3):
        leaf = x.clone().requires_grad_()
        aggregate(graph, leaf, weight).square().sum().backward()
        grads.append(leaf.grad)
    expected = x.clone().requires_grad_()
    reference(edges, expected, 500, weight).square().sum().backward()
    for grad in grads:
        torch.testing.assert_close(grad, expected.grad)
    assert torch.equal(grads[0], grads[2])


def test_kept_from_the_second_sighting_on(graph: Graph, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    weight = weights(graph)
    aggregate(graph, x, weight)
    assert cache_info().bytes == 0
    aggregate(graph, x, weight)
    assert cache_info().bytes == weight.nbytes
    del weight
    assert cache_info().bytes == 0


@pytest.mark.parametrize("hidden", [False, True], ids=["counted write", "write past the version counter"])
def test_a_write_is_seen(graph: Graph, edges: Tensor, x: Tensor, hidden: bool) -> None:
    weight = weights(graph)
    for _ in range(3):
        aggregate(graph, x, weight)
    target = weight.data if hidden else weight
    target[7] += 1
    for _ in range(3):
        torch.testing.assert_close(aggregate(graph, x, weight), reference(edges, x, 500, weight))


def test_graphs_do_not_share_an_order(graph: Graph, edges: Tensor, x: Tensor) -> None:
    weight = weights(graph)
    turned = Graph.from_edge_index(edges.flip(1), num_nodes=500)
    for _ in range(3):
        torch.testing.assert_close(aggregate(graph, x, weight), reference(edges, x, 500, weight))
        torch.testing.assert_close(aggregate(turned, x, weight), reference(edges.flip(1), x, 500, weight))


def test_strided_and_inference_weights_are_read_as_they_are(graph: Graph, edges: Tensor, x: Tensor) -> None:
    with torch.inference_mode():
        pairs = torch.stack([weights(graph), weights(graph)], 1)
        for _ in range(3):
            torch.testing.assert_close(
                aggregate(graph, x, pairs[:, 1]), reference(edges, x, 500, pairs[:, 1])
            )
            aggregate(graph, x, pairs[:, 1].contiguous())
    assert cache_info().bytes == 0


def fingerprint(data: Tensor, threads: int = 1) -> int:
    return native.extension.fingerprint(data.data_ptr(), data.nbytes, threads)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 63, 64, 65, 1000, 100_003])
def test_fingerprint_sees_every_byte(count: int) -> None:
    data = torch.randint(256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    own = fingerprint(data)
    assert own == fingerprint(data.clone(), threads=2)
    for place in {0, count // 3, count - 1} if count else ():
        changed = data.clone()
        changed[place] += 1
        assert fingerprint(changed) != own
    assert fingerprint(torch.cat([data, torch.zeros(1, dtype=torch.uint8)])) != own


def test_fingerprint_sees_an_exchange() -> None:
    data = torch.arange(10_000)
    exchanged = data.clone()
    exchanged[[3, 8000]] = data[[8000, 3]]
    assert fingerprint(data) != fingerprint(exchanged)


def test_tensors_without_elements_have_a_fingerprint():
    # Their address is 0, which undefined behaviour would come of.
    empty = torch.empty(0, 4)
    assert fingerprint(empty) == fingerprint(empty, threads=2) == fingerprint(torch.empty(0))
    assert fingerprint(empty) != fingerprint(torch.zeros(1, dtype=torch.uint8))
