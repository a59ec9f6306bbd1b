"""Merges of split rows in levels: every slot once and in order, and results as of a single level."""

from dataclasses import replace

import pytest
import torch

import onehop
from onehop import Graph, reference
from onehop.kernels.triton import merges as merges_module, work as work_module
from onehop.kernels.triton.merges import merges_of
from onehop.kernels.triton.work import work_of
from tests.kernels.triton.conftest import SMALL
from tests.kernels.triton.guarded import guarded
from tests.kernels.triton.small_graphs import EVERY_KERNEL, GRAPHS, made_on_device
from tests.ops.attention_cases import OPERATORS, check, operands
from tests.ops.checking import On
from tests.pairs import pairwise

CPU = torch.device("cpu")


def finished(merges, slots):
    """The slots of each row, in the order in which a row's program meets them."""
    found = {}
    parts = [[slot] for slot in range(slots)]
    for level in merges:
        following = [None] * level.slots
        begins, ends = level.begin.tolist(), level.end.tolist()
        going = [-1] * len(begins) if level.slot is None else level.slot.tolist()
        for row, begin, end, slot in zip(level.row.tolist(), begins, ends, going, strict=True):
            merged = [each for part in parts[begin:end] for each in part]
            if slot < 0:
                assert row not in found
                found[row] = merged
            elif slot == level.slots - 1:
                assert not merged, "a group that is left over has slots"
            else:
                assert following[slot] is None
                following[slot] = merged
        parts = following
    return found


@pairwise(most=[2, 3, 64], more_slots=[0, 1, 9])
@pytest.mark.parametrize(
    "numbers",
    [[2], [1, 0, 3], [4, 5, 200, 2], [65, 64, 0, 128, 129], [2] * 40, [70] * 5, [9, 0, 0, 0, 0, 0, 0]],
    ids=str,
)
def test_every_slot_is_merged_once_in_order(numbers, most, more_slots, monkeypatch):
    monkeypatch.setattr(merges_module, "MOST_SLOTS", most)
    begin = torch.tensor([0, *numbers]).cumsum(0)
    row = 3 * torch.arange(len(numbers))
    slots = sum(numbers)
    merges = merges_of(row, begin, slots + more_slots, max(numbers))
    expected = {
        3 * place: list(range(int(begin[place]), int(begin[place + 1])))
        for place, number in enumerate(numbers)
        if number
    }
    found = finished(merges, slots)
    assert {row: merged for row, merged in found.items() if merged} == expected
    assert all(int((level.end - level.begin).max()) <= most for level in merges)
    assert len(merges) == next(n for n in range(1, 10) if most**n >= max(numbers))
    assert merges[-1].slot is None
    assert merges[-1].slots == 0


def test_a_row_longer_than_was_known_is_merged_by_the_last_level(monkeypatch):
    monkeypatch.setattr(merges_module, "MOST_SLOTS", 2)
    merges = merges_of(torch.tensor([0, 1]), torch.tensor([0, 1, 21]), 21, 4)
    assert len(merges) == 2
    assert finished(merges, 21) == {0: [0], 1: list(range(1, 21))}


def hub_of(edges, on_device=False):
    """A hub in either direction, whose neighbours are six nodes, and a ring."""
    some, hub, node = torch.arange(edges) % 6, torch.full((edges,), 2), torch.arange(6)
    to_hub = torch.stack([some, hub])
    edge_index = torch.cat([to_hub, torch.stack([node, node.roll(1)]), to_hub.flip(0)], 1)
    return made_on_device(edge_index, 6) if on_device else Graph.from_edge_index(edge_index, 6)


def test_graphs_without_long_rows_have_one_merge():
    assert [len(work_of(hub_of(edges), False, CPU, 1, 1).merges) for edges in (50, 100)] == [1, 2]
    assert work_of(hub_of(50), False, CPU, 100, 1).merges == ()


def test_a_graph_made_on_a_device_has_merges_for_a_64th_of_its_edges():
    number = [len(work_of(hub_of(edges, True), False, CPU, 1, 1).merges) for edges in (60, 2000, 2100)]
    assert number == [1, 1, 2]


KNOWN, MADE = "known", "made on a device"


@pytest.fixture
def deep(request, monkeypatch, use):
    """A graph of rows that are merged in three levels; and its twin with one."""
    use(replace(SMALL, split_edges=2))
    monkeypatch.setattr(work_module, "_LONGEST_PART", 1)
    monkeypatch.setattr(merges_module, "MOST_SLOTS", 3)
    graph = hub_of(20, request.param == MADE)
    for turned in (False, True):
        assert len(work_of(graph, turned, CPU, 2, 2).merges) >= 3
    return graph


@pytest.mark.parametrize(
    ("deep", "operator", "dtype"),
    [(MADE, "gat", torch.bfloat16), (KNOWN, "gatv2", torch.bfloat16), (MADE, "attention", torch.float32)],
    indirect=["deep"],
    ids=str,
)
def test_attention(operator, dtype, deep):
    inputs = operands(operator, deep.edge_index(), 6, 6, 3, 3, dtype=dtype)
    check(operator, deep.edge_index(), 6, 6, inputs, graph=deep, backend="triton")


def results_of(name, graph):
    return On(name, graph, torch.float64, 3, backend="triton").outcome()


# A graph made on a device has all groups of a known one, and some that are left over.
# NumPy's warnings: for edges that are masked out, and groups that are left over, whose slot is not read.
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(
    ("deep", "name"),
    [*((MADE, name) for name in EVERY_KERNEL), (KNOWN, "sum, weighted"), (KNOWN, "gat")],
    indirect=["deep"],
)
def test_levels_stay_inside_write_all_need_no_order_and_give_the_results_of_one(name, deep, monkeypatch):
    plain = results_of(name, deep)
    with guarded():
        found = results_of(name, deep)
    monkeypatch.setattr(merges_module, "MOST_SLOTS", 64)
    for one, other, expected in zip(plain, found, results_of(name, hub_of(20)), strict=True):
        assert not other.isnan().any()
        assert torch.equal(one, other), "the order of programs shows"
        torch.testing.assert_close(other, expected)


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_that_pass_through_a_level_keep_their_bits(operator, monkeypatch, use):
    """Of one graph, rows with few slots have the same bits whether or not another row needs levels."""
    use(replace(SMALL, split_edges=2))
    edge_index, nodes, _ = GRAPHS["one_hub"]
    inputs = operands(operator, edge_index, nodes, nodes, 2, 3)
    few = Graph.from_edge_index(edge_index, nodes)
    more = torch.cat([edge_index, torch.stack([torch.arange(400) % nodes, torch.full((400,), nodes - 1)])], 1)
    many = Graph.from_edge_index(more, nodes)
    assert [len(work_of(each, False, CPU, 2, 2).merges) for each in (few, many)] == [1, 2]
    outs = [getattr(onehop, operator)(graph, **inputs, backend="triton") for graph in (few, many)]
    rows = slice(0, nodes - 1)
    assert torch.equal(*(out[rows] for out in outs))


@pytest.mark.parametrize(("deep", "bad"), [(KNOWN, float("nan")), (MADE, -float("inf"))], indirect=["deep"])
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # of numpy, which interprets
def test_special_scores(bad, deep):
    edge_index = deep.edge_index()
    inputs = operands("gat", edge_index, 6, 6, 1, 2)
    for rows in (slice(0, 1), slice(None)):
        changed = inputs["score_src"].clone()
        changed[rows] = bad
        tensors = inputs | {"score_src": changed}
        ours = onehop.gat(deep, **tensors, backend="triton")
        exact, _ = reference.gat(edge_index, **tensors)
        torch.testing.assert_close(ours, exact, equal_nan=True, rtol=1e-4, atol=1e-5)
