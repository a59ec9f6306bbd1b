"""Windows of 16 rows: that their columns hold every edge once, and how many edges share a column."""

import pytest
import torch

from onehop import Graph
from onehop.kernels.triton import blocks as module
from onehop.kernels.triton.blocks import blocks_of, edges_per_column, pays
from tests.kernels.triton.small_graphs import GRAPHS
from tests.pairs import pairwise

CPU = torch.device("cpu")


def graph_of(name):
    edge_index, num_src, num_dst = GRAPHS[name]
    return Graph.from_edge_index(edge_index, size=(num_src, num_dst))


def edges_of(blocks):
    """(caller's number, row, source) of every edge, as kernels find them."""
    columns = blocks.columns
    for window, begin, end in zip(blocks.window, blocks.begin, blocks.end, strict=True):
        for place in range(begin, end):
            rows = [r for r in range(16) if int(columns.members[place]) >> r & 1]
            for above, row in enumerate(rows):
                number = columns.perm[columns.first_edge[place] + above]
                yield int(number), int(window) * 16 + row, int(columns.source[place])


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pairwise(name=GRAPHS, split=[4, 1000])
def test_columns_hold_every_edge_once(name, split, transposed):
    graph = graph_of(name)
    blocks = blocks_of(graph, transposed, CPU, split)
    source, target = GRAPHS[name][0]
    row, col = (source, target) if transposed else (target, source)
    expected = [(number, int(row[number]), int(col[number])) for number in range(graph.num_edges)]
    assert sorted(edges_of(blocks)) == expected
    assert (blocks.end - blocks.begin <= split).all()


@pytest.mark.parametrize("name", GRAPHS)
def test_slots_of_windows_that_are_cut(name):
    graph = graph_of(name)
    blocks = blocks_of(graph, False, CPU, 4)
    degrees = graph.in_degrees
    pieces = torch.bincount(blocks.window, minlength=-(-graph.num_dst // 16)).repeat_interleave(16)
    pieces = pieces[: graph.num_dst]
    assert torch.equal(blocks.row_slot == -2, degrees == 0)
    cut = (pieces > 1) & (degrees > 0)
    assert torch.equal(blocks.row_slot >= 0, cut)
    assert blocks.slots == int(pieces[cut].sum())
    assert len(blocks.merges) == bool(blocks.slots)
    for merge in blocks.merges:
        assert merge.row.tolist() == cut.nonzero().squeeze(1).tolist()
        assert merge.begin.tolist() == blocks.row_slot[cut].tolist()
        assert (merge.end - merge.begin).tolist() == pieces[cut].tolist()


def test_the_hub_is_cut_into_even_pieces():
    blocks = blocks_of(graph_of("one_hub"), False, CPU, 14)
    assert (blocks.end - blocks.begin).tolist() == [10] * 3  # 30 edges from 4 sources: repeats take columns


def test_repeated_edges_take_columns_of_their_own():
    blocks = blocks_of(graph_of("multi_edges"), False, CPU, 100)
    assert blocks.columns.source.tolist() == [0, 0, 0, 1, 1, 2]
    assert blocks.columns.members.tolist() == [0b010, 0b010, 0b010, 0b001, 0b001, 0b100]


def test_kept_with_its_graph_and_columns_shared():
    graph = graph_of("random")
    before = graph.nbytes
    blocks = blocks_of(graph, False, CPU, 4)
    assert blocks_of(graph, False, CPU, 4) is blocks
    assert blocks_of(graph, False, CPU, 8).columns is blocks.columns
    assert blocks_of(graph, True, CPU, 4).columns is not blocks.columns
    assert graph.nbytes > before + blocks.nbytes + blocks.columns.nbytes


def test_bytes_of_a_column():
    columns = blocks_of(graph_of("random"), False, CPU, 4).columns
    assert columns.nbytes == 10 * columns.source.numel() + 4 * columns.perm.numel() + 2 * 8


def test_numbered_in_64_bits(monkeypatch):
    monkeypatch.setattr(module, "_NARROW_EDGES", 0)
    blocks = blocks_of(graph_of("one_hub"), False, CPU, 10)
    assert {t.dtype for t in (blocks.begin, blocks.end, blocks.columns.first_edge)} == {torch.int64}


def full(rows, cols):
    return Graph.from_edge_index(
        torch.cartesian_prod(torch.arange(cols), torch.arange(rows)).t(), size=(cols, rows)
    )


@pytest.mark.parametrize(("rows", "expected"), [(16, 16.0), (8, 8.0), (24, 12.0), (1, 1.0)])
def test_edges_per_column_of_full_blocks(rows, expected):
    assert edges_per_column(full(rows, 20)) == expected


@pytest.mark.parametrize("name", GRAPHS)
def test_edges_per_column_is_what_the_columns_say(name):
    graph = graph_of(name)
    distinct = Graph.from_edge_index(graph.edge_index().unique(dim=1), size=(graph.num_src, graph.num_dst))
    columns = blocks_of(distinct, False, CPU, 4).columns
    expected = distinct.num_edges / max(columns.source.numel(), 1)
    assert edges_per_column(graph) == pytest.approx(expected)


def test_a_sample_of_windows_tells_the_whole():
    generator = torch.Generator().manual_seed(0)
    graph = Graph.from_edge_index(torch.randint(0, 400, (2, 60_000), generator=generator), 400)
    assert edges_per_column(graph, windows=5) == pytest.approx(edges_per_column(graph), rel=0.05)


def test_pays_where_gathered_rows_serve_two_edges_in_16_bits():
    dense = full(32, 32)
    assert pays(dense, torch.bfloat16)
    assert pays(dense, torch.float16)
    assert not pays(dense, torch.float32)
    assert not pays(full(1, 32), torch.float16)  # sixteen edges a column one way, one the other
    assert not pays(graph_of("no_edges"), torch.float16)
