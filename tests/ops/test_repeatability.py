"""Same bits every time: over runs, numbers of threads, and several Python threads at once."""

import concurrent.futures

import pytest
import torch

import onehop
from onehop import Graph
from onehop.ops.aggregate import REDUCTIONS


@pytest.fixture(scope="module")
def graph():
    generator = torch.Generator().manual_seed(0)
    # A hub that is cut into many pieces, beside rows of ordinary length.
    source = torch.randint(0, 3000, (60000,), generator=generator)
    target = torch.cat(
        [torch.zeros(20000, dtype=torch.long), torch.randint(0, 3000, (40000,), generator=generator)]
    )
    return Graph.from_edge_index(torch.stack([source, target]), 3000)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def everything(graph, reduce):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3000, 33, generator=generator).requires_grad_()
    weight = torch.randn(60000, generator=generator).requires_grad_()
    out = onehop.aggregate(graph, x, weight, reduce)
    grads = torch.autograd.grad(out, [x, weight], torch.randn(3000, 33, generator=generator))
    return [out.detach(), *grads, onehop.sddmm(graph, x.detach(), x.detach())]


def same_bits(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_runs_and_thread_counts_agree_bit_by_bit(graph, threads, reduce):
    threads(1)
    once = everything(graph, reduce)
    for count in (1, 2, 4, 7):
        threads(count)
        for _ in range(3):
            assert same_bits(everything(graph, reduce), once), f"{count} threads"


def test_cut_rows_are_really_there(graph):
    items = graph.csr.work_items(512)
    assert sum(head >= 0 for *_, head, _ in items) > 10


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_several_python_threads_at_once(graph, reduce):
    expected = everything(graph, reduce)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: everything(graph, reduce), range(12)))
    assert all(same_bits(result, expected) for result in results)


def test_transpose_is_made_once_by_many_threads():
    edge_index = torch.randint(0, 500, (2, 20000), generator=torch.Generator().manual_seed(2))
    graph = Graph.from_edge_index(edge_index, 500)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: graph.transposed_csr, range(16)))
    assert all(csr is made[0] for csr in made)
