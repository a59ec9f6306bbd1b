"""Work of graphs that were made on a device: cut without asking how many items there are."""

import pytest
import torch

from onehop.kernels.triton import work as work_module
from onehop.kernels.triton.work import work_of
from tests.kernels.triton.small_graphs import GRAPHS, graph_of, made_on_device
from tests.ops.checking import On, assert_close
from tests.pairs import pairwise

CPU = torch.device("cpu")


def graphs_of(name):
    """Made on the device, and by the native builder."""
    edge_index, *size = GRAPHS[name]
    return made_on_device(edge_index, size=tuple(size)), graph_of(name)


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize(("split", "short"), [(6, 2), (1, 0), (4, 4), (3, 1), (1000, 10)])
@pairwise(name=GRAPHS)
def test_items_cover_every_edge_once(name, split, short, transposed, monkeypatch):
    monkeypatch.setattr(work_module, "_WINDOW", 8)
    graph, known = graphs_of(name)
    work, exact = work_of(graph, transposed, CPU, split, short), work_of(known, transposed, CPU, split, short)
    rowptr = graph.on(CPU, transposed).rowptr
    covered = torch.zeros(graph.num_edges, dtype=torch.long)
    in_slots, whole = {}, []
    for row, begin, end, slot in torch.stack([work.row, work.begin, work.end, work.slot], 1).tolist():
        covered[begin:end] += 1
        assert end - begin <= split
        if slot < 0:
            assert (begin, end) == (int(rowptr[row]), int(rowptr[row + 1]))
            whole.append(row)
        elif begin < end or slot < work.slots - 1:
            assert rowptr[row] <= begin <= end <= rowptr[row + 1]
            in_slots[slot] = row
    assert covered.eq(1).all()
    # Every row is either whole, or in slots of its own, in the order of its edges.
    bounds = work.split_begin.tolist()
    in_ranges = [
        row for row, many in zip(work.split_row.tolist(), work.split_begin.diff(), strict=True) if many
    ]
    assert sorted(whole + in_ranges) == list(range(work.rows))
    assert all(rowptr[row] < rowptr[row + 1] for row in in_ranges)
    for number, row in enumerate(work.split_row.tolist()):
        assert [in_slots[slot] for slot in range(*bounds[number : number + 2])] == [row] * (
            bounds[number + 1] - bounds[number]
        )
    assert bounds[-1] < max(work.slots, 1)
    # No fewer than there are, and those that are counted as short are.
    assert (work.items, work.slots, work.long_items) >= (exact.items, exact.slots, 0)
    assert work.long_items >= exact.long_items
    assert set(exact.split_row.tolist()) <= set(work.split_row.tolist())
    assert ((work.end - work.begin)[work.long_items :] <= short).all()


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_first_item_of_a_program_is_its_longest(name, rows, monkeypatch):
    monkeypatch.setattr(work_module, "_WINDOW", 8)
    work = work_of(graphs_of(name)[0], False, CPU, 6, 2)
    for tile in (work.end - work.begin)[work.long_items :].split(rows):
        assert all(tile <= tile[:1])


CALLS = ("sum", "mean", "max", "gatv2", "attention")


# NumPy's, for items that are left over: what they compute of no edges goes into a slot that is never read.
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "call"),
    [
        *((name, call) for name in ("one_hub", "no_edges") for call in CALLS),
        *((name, call) for name in ("bipartite_wide", "empty_rows") for call in ("sum", "gatv2")),
    ],
)
def test_results_and_gradients_are_those_of_exact_work(call, name):
    found = [On(call, graph, torch.float32, 5, backend="triton").outcome() for graph in graphs_of(name)]
    assert_close(*found, rtol=1e-4, atol=1e-5)
