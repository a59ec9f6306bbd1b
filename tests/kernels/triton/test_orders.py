"""Orders in which rows become work: the same results from every operator, forward and backward."""

import dataclasses

import pytest
import torch

import onehop
from onehop import Graph
from onehop.graph.reorder import row_order
from onehop.kernels.triton import work as work_module
from onehop.kernels.triton.work import work_of
from tests.kernels.triton.conftest import PLANS
from tests.kernels.triton.small_graphs import GRAPHS
from tests.pairs import pairwise

CPU = torch.device("cpu")
ORDERS = ["degree", "rcm", "community"]
HEADS, WIDTH = 2, 3
# A multiple of the rows that share a program, as the real one is of all that plans allow.
WINDOW = max(plan.rows_per_program for plan in PLANS.values())


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """A program's rows and several windows of them fit into small graphs."""
    monkeypatch.setattr(work_module, "_WINDOW", WINDOW)


def graph_of(name):
    edge_index, num_src, num_dst = GRAPHS[name]
    return Graph.from_edge_index(edge_index, size=(num_src, num_dst))


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pairwise(name=GRAPHS, order=ORDERS)
def test_an_order_moves_items_and_changes_none(name, order, transposed):
    graph = graph_of(name)
    plain, ordered = (work_of(graph, transposed, CPU, 6, 2, each) for each in ("none", order))
    fields = ("row", "begin", "end", "slot")
    assert (plain.long_items, plain.slots) == (ordered.long_items, ordered.slots)
    assert torch.equal(plain.split_row, ordered.split_row)
    for part in (slice(plain.long_items), slice(plain.long_items, None)):
        items = [
            sorted(zip(*(getattr(work, field)[part].tolist() for field in fields), strict=True))
            for work in (plain, ordered)
        ]
        assert items[0] == items[1]


def test_rows_follow_the_order_window_by_window():
    graph = graph_of("bipartite_tall")
    work = work_of(graph, False, CPU, 6, 2, "degree")
    order = row_order(graph, "degree", False)
    short = [row for row in order.tolist() if graph.in_degrees[row] <= 2]
    length = work.end - work.begin
    assert work.row[work.long_items :].tolist() != sorted(short)
    for begin in range(0, len(short), WINDOW):
        window = slice(work.long_items + begin, work.long_items + begin + WINDOW)
        assert sorted(work.row[window].tolist()) == sorted(short[begin : begin + WINDOW])
        assert torch.equal(length[window], length[window].sort(descending=True).values)


def test_the_longest_items_begin_first_whatever_the_order():
    hub = torch.stack([torch.arange(40) % 8, torch.tensor([1] * 5 + [3] * 20 + [5] * 15)])
    work = work_of(Graph.from_edge_index(hub, 8), False, CPU, 64, 2, "rcm")
    assert work.row[: work.long_items].tolist() == [3, 5, 1]


def operators(graph, generator):
    """name: (call, tensors that are differentiated)."""

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    x, weight = random(graph.num_src, HEADS * WIDTH), random(graph.num_edges)
    src, dst = random(graph.num_src, HEADS, WIDTH), random(graph.num_dst, HEADS, WIDTH)
    return {
        "sum": (lambda x, w: onehop.aggregate(graph, x, w, backend="triton"), (x, weight)),
        "mean": (lambda x: onehop.aggregate(graph, x, reduce="mean", backend="triton"), (x,)),
        "max": (lambda x, w: onehop.aggregate(graph, x, w, "max", backend="triton"), (x, weight)),
        "sddmm": (lambda a, b: onehop.sddmm(graph, a, b, backend="triton"), (dst, src)),
        "softmax": (
            lambda scores: onehop.edge_softmax(graph, scores, backend="triton"),
            (random(graph.num_edges, HEADS),),
        ),
        "gat": (
            lambda x, a, b: onehop.gat(graph, x, a, b, backend="triton"),
            (src, random(graph.num_src, HEADS), random(graph.num_dst, HEADS)),
        ),
        "gatv2": (
            lambda x, y, att: onehop.gatv2(graph, x, y, att, backend="triton"),
            (src, dst, random(HEADS, WIDTH)),
        ),
        "attention": (
            lambda q, k, v: onehop.attention(graph, q, k, v, backend="triton"),
            (dst, src, random(graph.num_src, HEADS, WIDTH)),
        ),
    }


def run(call, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    out = call(*leaves)
    pull = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out.detach(), *torch.autograd.grad(out, leaves, pull)]


# Parameters' gradients are added up over rows, in the order of the programs: those differ by rounding.
SUMMED_OVER_ROWS = {"gatv2"}


@pytest.mark.parametrize(
    ("name", "mapping", "order", "names"),
    [
        ("one_hub", "neighbour", "degree", ["sum", "gat"]),
        ("bipartite_tall", "neighbour", "community", ["sum", "mean", "softmax", "gatv2"]),
        ("bipartite_tall", "feature", "rcm", ["max", "sddmm", "gat", "attention"]),
    ],
)
def test_results_and_gradients_do_not_depend_on_the_order(name, mapping, order, names, use, generator):
    graph = graph_of(name)
    calls = operators(graph, generator)
    for operator in names:
        call, tensors = calls[operator]
        use(PLANS[mapping])
        expected = run(call, tensors)
        use(dataclasses.replace(PLANS[mapping], ordering=order))
        found = run(call, tensors)
        assert any(order in key for key in graph.derived), "no work was made for the order"
        if operator in SUMMED_OVER_ROWS:
            torch.testing.assert_close(found, expected, msg=operator)
        else:
            assert all(map(torch.equal, found, expected)), operator
