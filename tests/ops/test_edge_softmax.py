import pytest
import torch

import onehop
from onehop import ArgumentError, Graph, reference
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

INF, NAN = float("inf"), float("nan")


def scores_for(edges, tail, dtype, scale=3.0):
    generator = torch.Generator().manual_seed(11)
    return (scale * torch.randn(edges, *tail, generator=generator, dtype=torch.float64)).to(dtype)


def check(edge_index, num_src, num_dst, scores, backend=None):
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    compare(
        lambda scores: onehop.edge_softmax(graph, scores, backend=backend),
        lambda scores: reference.edge_softmax(edge_index, scores, num_dst),
        {"scores": scores},
        ["scores"],
    )


@pairwise(backend=["cpu", "reference"], name=HOSTILE)
@pytest.mark.parametrize("tail", [(), (1,), (4,), (7,)], ids=["plain", "1", "4", "7"])
def test_hostile_graphs(name, tail, backend):
    edge_index, num_src, num_dst = HOSTILE[name]
    check(edge_index, num_src, num_dst, scores_for(edge_index.size(1), tail, torch.float32), backend)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [0, 1, 2, 3, 8, 17, 63, 130])
def test_heads_and_dtypes(heads, dtype):
    edge_index, num_src, num_dst = HOSTILE["random"]
    check(edge_index, num_src, num_dst, scores_for(edge_index.size(1), (heads,), dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [1, 3])
def test_a_hub_that_is_cut_into_pieces(heads, dtype):
    generator = torch.Generator().manual_seed(5)
    target = torch.cat([torch.full((9000,), 3), torch.randint(0, 40, (3000,), generator=generator)])
    target = target[torch.randperm(12000, generator=generator)]
    edge_index = torch.stack([torch.randint(0, 40, (12000,), generator=generator), target])
    graph = Graph.from_edge_index(edge_index, 40)
    assert sum(head >= 0 for *_, head, _ in graph.csr.work_items(1024)) > 5
    check(edge_index, 40, 40, scores_for(12000, (heads,), dtype))


def test_edge_numbers_of_64_bits(bounds):
    bounds(wide_edges=0)
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    assert graph.perm is not None
    assert graph.perm.dtype == torch.int64
    check(edge_index, num_src, num_dst, scores_for(300, (3,), torch.float32))


def test_edges_that_come_sorted():
    edge_index, num_src, num_dst = HOSTILE["random"]
    edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
    assert Graph.from_edge_index(edge_index, size=(num_src, num_dst)).perm is None
    check(edge_index, num_src, num_dst, scores_for(300, (3,), torch.float32))


def on_one_row(scores, edges_per_row=None):
    """The softmax of scores over one destination, and the reference's."""
    scores = torch.as_tensor(scores, dtype=torch.float32)
    edge_index = torch.zeros(2, scores.size(0), dtype=torch.long)
    graph = Graph.from_edge_index(edge_index, 1)
    return onehop.edge_softmax(graph, scores), reference.edge_softmax(edge_index, scores, 1)


@pytest.mark.parametrize(
    "scores",
    [
        [0.0, -INF, 1.0],
        [-INF, -INF],
        [NAN, 1.0, 2.0],
        [1.0, 2.0, NAN],
        [NAN, NAN],
        [INF, 1.0],
        [INF, -INF, INF],
        [3e38, -3e38, 3e38],
        [-3e38, -3e38],
        [88.0, 89.0, 1000.0],
        [0.0] * 9,
        [-200.0, -100.0, 0.0],
    ],
    ids=str,
)
def test_special_scores(scores):
    ours, expected = on_one_row(scores)
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.parametrize("special", [-INF, NAN, INF])
@pytest.mark.parametrize("where", ["one", "a_piece", "all"])
def test_special_scores_in_a_cut_row(special, where):
    scores = scores_for(5000, (), torch.float32)
    scores[{"one": slice(2500, 2501), "a_piece": slice(0, 2100), "all": slice(None)}[where]] = special
    ours, expected = on_one_row(scores)
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-5, atol=0)


def test_shares_add_up_to_one():
    edge_index, num_src, num_dst = HOSTILE["empty_rows"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    shares = onehop.edge_softmax(graph, scores_for(30, (2,), torch.float64, scale=100.0))
    sums = torch.zeros(num_dst, 2, dtype=torch.float64).index_add(0, edge_index[1], shares)
    torch.testing.assert_close(sums, (graph.in_degrees > 0).double().unsqueeze(1).expand(-1, 2))


def test_scores_that_are_not_contiguous():
    edge_index, num_src, _ = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    scores = torch.randn(3, 300).t()
    torch.testing.assert_close(
        onehop.edge_softmax(graph, scores), reference.edge_softmax(edge_index, scores, num_src)
    )


def test_derivatives_of_both_orders():
    edge_index, num_src, _ = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, num_src)
    scores = scores_for(6, (2,), torch.float64, scale=1.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: onehop.edge_softmax(graph, s), [scores])
    assert torch.autograd.gradgradcheck(lambda s: onehop.edge_softmax(graph, s), [scores])


def test_runs_and_thread_counts_agree_bit_by_bit():
    generator = torch.Generator().manual_seed(6)
    target = torch.cat(
        [torch.zeros(20000, dtype=torch.long), torch.randint(0, 900, (9000,), generator=generator)]
    )
    graph = Graph.from_edge_index(torch.stack([target.flip(0), target]), 900)
    scores, grad = torch.randn(2, 29000, 3, generator=generator).unbind()

    def both():
        leaf = scores.clone().requires_grad_()
        out = onehop.edge_softmax(graph, leaf)
        return out.detach(), torch.autograd.grad(out, leaf, grad)[0]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        once = both()
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert all(torch.equal(a, b) for a, b in zip(both(), once, strict=True)), f"{threads} threads"
    finally:
        torch.set_num_threads(before)


def test_opcheck():
    edge_index, num_src, num_dst = HOSTILE["bipartite_wide"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    rest = (graph.number, num_src, num_dst, "")
    scores = scores_for(200, (2,), torch.float64).requires_grad_()
    torch.library.opcheck(torch.ops.onehop.edge_softmax.default, (scores, *rest))
    softmax, grad = (t.requires_grad_() for t in scores_for(2 * 200, (2,), torch.float64).split(200))
    torch.library.opcheck(torch.ops.onehop.edge_softmax_grad.default, (softmax, grad, *rest))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
def test_compiles_as_one_graph():
    edge_index, num_src, _ = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)

    def layer(scores):
        return onehop.edge_softmax(graph, scores.relu()).sin()

    scores = scores_for(300, (2,), torch.float64).requires_grad_()
    torch._dynamo.reset()
    ours, expected = torch.compile(layer, fullgraph=True, backend="aot_eager")(scores), layer(scores)
    torch.testing.assert_close(ours, expected)
    grad = torch.randn_like(ours)
    torch.testing.assert_close(*(torch.autograd.grad(out, scores, grad)[0] for out in (ours, expected)))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (torch.ones(5), r"scores: expected \[6\] or \[6, heads\]"),
        (torch.ones(6, 1, 1), r"scores: expected \[6\] or \[6, heads\]"),
        (torch.ones(6, dtype=torch.long), "scores: expected float32"),
        (torch.ones(6, 2).to_sparse(), "scores: expected a dense tensor, got a torch.sparse_coo"),
        ([1.0] * 6, "scores: expected a dense tensor, got list"),
    ],
    ids=["too_few", "three_dimensions", "integers", "sparse", "a_list"],
)
def test_bad_scores_are_named(scores, message):
    edge_index, num_src, _ = HOSTILE["multi_edges"]
    with pytest.raises(ArgumentError, match=message):
        onehop.edge_softmax(Graph.from_edge_index(edge_index, num_src), scores)
