import pytest
import torch

from onehop.kernels.triton.work import work_of
from tests.kernels.triton.small_graphs import GRAPHS, graph_of
from tests.pairs import pairwise

CPU = torch.device("cpu")


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize(("split", "short"), [(6, 2), (1, 0), (4, 4), (1000, 10)])
@pairwise(name=GRAPHS)
def test_items_cover_every_edge_once(name, split, short, transposed):
    graph = graph_of(name)
    work = work_of(graph, transposed, CPU, split, short)
    csr = graph.transposed_csr if transposed else graph.csr
    covered = torch.zeros(graph.num_edges, dtype=torch.long)
    for row, begin, end, slot in zip(work.row, work.begin, work.end, work.slot, strict=True):
        assert csr.rowptr[row] <= begin <= end <= csr.rowptr[row + 1]
        assert end - begin <= split
        assert (slot < 0) == (end - begin == csr.rowptr[row + 1] - csr.rowptr[row])
        covered[begin:end] += 1
    assert covered.eq(1).all()
    assert sorted(set(work.row.tolist())) == list(range(csr.rows))


@pytest.mark.parametrize("name", GRAPHS)
def test_long_items_come_first_and_short_ones_by_length(name):
    work = work_of(graph_of(name), False, CPU, 6, 2)
    length = work.end - work.begin
    assert (length[: work.long_items] > 2).all()
    short = length[work.long_items :]
    assert (short <= 2).all()
    assert torch.equal(short, short.sort(descending=True).values)


def test_slots_of_a_cut_row_follow_its_edges():
    work = work_of(graph_of("one_hub"), False, CPU, 6, 2)
    assert work.slots == 5  # 30 edges
    assert work.split_row.tolist() == [2]
    assert work.split_begin.tolist() == [0, 5]
    pieces = work.slot >= 0
    order = work.slot[pieces].argsort()
    assert torch.equal(work.slot[pieces][order], torch.arange(5, dtype=torch.int32))
    assert torch.equal(work.begin[pieces][order].sort().values, work.begin[pieces][order])


def test_work_is_kept_with_its_graph():
    graph = graph_of("random")
    before = graph.nbytes
    work = work_of(graph, False, CPU, 6, 2)
    assert work_of(graph, False, CPU, 6, 2) is work
    assert work_of(graph, True, CPU, 6, 2) is not work
    assert work_of(graph, False, CPU, 7, 2) is not work
    assert graph.nbytes > before + work.nbytes
