"""Orders in which rows become work: the same results from every operator, forward and backward."""

import dataclasses

import pytest
import torch

from onehop import Graph
from onehop.graph.reorder import row_order
from onehop.kernels.triton import work as work_module
from onehop.kernels.triton.work import work_of
from tests.kernels.triton.conftest import PLANS
from tests.kernels.triton.small_graphs import GRAPHS, graph_of
from tests.ops.checking import On, same_bits
from tests.pairs import pairwise

CPU = torch.device("cpu")
ORDERS = ["degree", "rcm", "community"]
# A multiple of the rows that share a program, as the real one is of all that plans allow.
WINDOW = max(plan.rows_per_program for plan in PLANS.values())


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """A program's rows and several windows of them fit into small graphs."""
    monkeypatch.setattr(work_module, "_WINDOW", WINDOW)


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


# Parameters' gradients are added up over rows, in the order of the programs: those differ by rounding.
SUMMED_OVER_ROWS = {"gatv2"}


@pytest.mark.parametrize(
    ("name", "mapping", "order", "names"),
    [
        ("one_hub", "neighbour", "degree", ["sum, weighted", "gat"]),
        ("bipartite_tall", "neighbour", "community", ["sum", "mean", "edge_softmax, heads", "gatv2"]),
        ("bipartite_tall", "feature", "rcm", ["max, weighted", "sddmm, heads", "gat", "attention"]),
    ],
)
def test_results_and_gradients_do_not_depend_on_the_order(name, mapping, order, names, use):
    graph = graph_of(name)
    for operator in names:
        on = On(operator, graph, torch.float32, 3, backend="triton")
        use(PLANS[mapping])
        expected = on.outcome()
        use(dataclasses.replace(PLANS[mapping], ordering=order))
        found = on.outcome()
        assert any(order in key for key in graph.derived), "no work was made for the order"
        if operator in SUMMED_OVER_ROWS:
            torch.testing.assert_close(found, expected, msg=operator)
        else:
            assert same_bits(found, expected), operator
