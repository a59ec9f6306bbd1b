"""The engine draws what the naive sampler draws, edge by edge, with any number of threads."""

import copy
import math
import pickle
from collections import Counter

import pytest
import torch
from hypothesis import given, settings

import onehop
from onehop.graph import Graph
from onehop.loaders.engine import Choices, Engine
from onehop.loaders.relation import Relation, checked_fan_out, checked_time, checked_weight
from tests.loaders.small_graphs import Case, cases, plain


def star(degree: int, fan_out: int, weight: list[float] | None = None, **choices: bool) -> Engine:
    """Node 0 has that many neighbours, and the others none."""
    relation = Relation(
        name="edges",
        rowptr=torch.tensor([0] + [degree] * (degree + 1)),
        col=torch.arange(1, degree + 1),
        src=0,
        dst=0,
        fan_out=(fan_out,),
        weight=None if weight is None else torch.tensor(weight, dtype=torch.float64),
    )
    return Engine([degree + 1], [relation], Choices(1, **choices))


def draws(engine: Engine, times: int) -> Counter:
    seed = torch.tensor([0])
    return Counter(edge for key in range(times) for edge in engine.draw([seed], key).edges[0].tolist())


@given(case=cases())
@settings(max_examples=120)
def test_as_the_naive_sampler(case: Case) -> None:
    naive = case.naive()
    expected = (
        naive.nodes,
        naive.edges,
        naive.nodes_per_hop,
        None if case.options["induced"] else naive.edges_per_hop,
    )
    for wide in (False, True):
        assert plain(case.drawn(case.engine(wide))) == expected


@given(case=cases())
@settings(max_examples=25)
def test_memory_of_the_batch_before_leaves_no_trace(case: Case) -> None:
    engine = case.engine()
    first = plain(case.drawn(engine))
    others = [torch.arange(count) for count in case.num_nodes]
    times = None if case.times is None else [torch.full((count,), 5) for count in case.num_nodes]
    engine.draw(others, case.key ^ 1, times=times)
    assert plain(case.drawn(engine)) == first


@given(case=cases())
@settings(max_examples=25)
def test_graphs_are_those_of_the_edges(case: Case) -> None:
    batch = case.drawn(case.engine())
    assert batch.graphs is not None
    for relation, edge_index, graph in zip(case.relations, batch.edge_index, batch.graphs, strict=True):
        size = (len(batch.nodes[relation.src]), len(batch.nodes[relation.dst]))
        made = Graph.from_edge_index(edge_index, size=size)
        assert made.perm is None, "edges are sorted by destination"
        assert (graph.num_src, graph.num_dst) == size
        assert torch.equal(graph.rowptr, made.rowptr)
        assert torch.equal(graph.col, made.col)


def test_any_number_of_threads_draws_the_same(generator) -> None:
    edge_index = torch.randint(0, 5000, (2, 60000), generator=generator)
    graph = Graph.from_edge_index(edge_index, num_nodes=5000)
    weight = torch.rand(60000, generator=generator).double()
    seeds = torch.randperm(5000, generator=generator)[:1200]
    for of_edges, choices in (
        (None, {}),
        (weight, {}),
        (weight, {"replace": True}),
        (None, {"induced": True}),
    ):
        relation = Relation("edges", graph.rowptr, graph.col, 0, 0, (10, 5), weight=of_edges)
        engine = Engine([5000], [relation], Choices(2, **choices))
        found = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(plain(engine.draw([seeds], 7)))
        assert found[0] == found[1] == found[2]
        assert len(found[0][1][0]) > 1200


@pytest.mark.parametrize(("degree", "fan_out"), [(10, 3), (300, 40), (5, 4)], ids=str)
def test_every_neighbour_is_as_likely(degree: int, fan_out: int) -> None:
    times = 2000
    found = draws(star(degree, fan_out), times)
    share = fan_out / degree
    spread = math.sqrt(times * share * (1 - share))
    assert all(abs(found[edge] - times * share) < 5 * spread for edge in range(degree))
    assert sum(found.values()) == times * fan_out


def test_no_neighbour_twice_without_replacement() -> None:
    for fan_out in (3, 40, 99):
        engine = star(100, fan_out)
        for key in range(50):
            edges = engine.draw([torch.tensor([0])], key).edges[0].tolist()
            assert len(set(edges)) == fan_out


def test_with_replacement_there_are_as_many_as_asked_for() -> None:
    batch = star(3, 50, replace=True).draw([torch.tensor([0])], 0)
    assert batch.edges[0].numel() == 50
    assert batch.nodes[0].tolist()[0] == 0
    assert sorted(batch.nodes[0].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("replace", [False, True])
def test_first_picks_follow_the_weights(replace: bool) -> None:
    weight = [1.0, 0.0, 3.0, 6.0]
    times = 4000
    found = draws(star(4, 1, weight, replace=replace), times)
    assert found[1] == 0
    for edge, share in enumerate(each / 10 for each in weight):
        assert abs(found[edge] - times * share) <= 5 * math.sqrt(times * share * (1 - share))


def test_two_picks_without_replacement_follow_the_weights() -> None:
    # The probability of both orders, from the first weight and what is left of the sum.
    times = 4000
    found = draws(star(3, 2, [1.0, 2.0, 3.0]), times)
    share = {
        0: 1 / 6 + 2 / 6 * 1 / 4 + 3 / 6 * 1 / 3,
        1: 2 / 6 + 1 / 6 * 2 / 5 + 3 / 6 * 2 / 3,
        2: 3 / 6 + 1 / 6 * 3 / 5 + 2 / 6 * 3 / 4,
    }
    for edge, probability in share.items():
        spread = math.sqrt(times * probability * (1 - probability))
        assert abs(found[edge] - times * probability) < 5 * spread


def test_edges_without_weight_come_last() -> None:
    found = draws(star(4, 3, [1.0, 0.0, 0.0, 6.0]), 200)
    assert found[0] == found[3] == 200
    assert found[1] + found[2] == 200


def test_isolated_and_no_seeds() -> None:
    engine = star(5, 3)
    alone = engine.draw([torch.tensor([4, 2])], 0)
    assert alone.nodes[0].tolist() == [4, 2]
    assert alone.edge_index[0].shape == (2, 0)
    assert (alone.nodes_per_hop, alone.edges_per_hop) == ([[2, 0]], [[0]])
    for empty in (engine.draw([None], 0), engine.draw([torch.tensor([], dtype=torch.int64)], 0)):
        assert empty.nodes[0].numel() == 0
        assert empty.nodes_per_hop == [[0, 0]]


def test_a_pickled_engine_draws_the_same() -> None:
    engine = star(50, 7)
    engine.draw([torch.tensor([0])], 0)
    for again in (pickle.loads(pickle.dumps(engine)), copy.deepcopy(engine)):
        assert plain(again.draw([torch.tensor([0])], 3)) == plain(engine.draw([torch.tensor([0])], 3))


def bad(**changed: torch.Tensor) -> Engine:
    arrays = {"rowptr": torch.tensor([0, 2, 3, 3]), "col": torch.tensor([1, 2, 0])} | changed
    return Engine([3], [Relation("edges", src=0, dst=0, fan_out=(2, 2), **arrays)], Choices(2, disjoint=True))


@pytest.mark.parametrize("seed", [-1, 3, 2**40])
def test_seeds_out_of_range(seed: int) -> None:
    with pytest.raises(onehop.IndexRangeError, match=rf"node {seed}, seed 1, is not in \[0, 3\)"):
        bad().draw([torch.tensor([0, seed])], 0)


@pytest.mark.parametrize("source", [-1, 3, 2**40])
def test_sources_out_of_range(source: int) -> None:
    engine = bad(col=torch.tensor([1, source, 0]))
    with pytest.raises(onehop.IndexRangeError, match=f"source {source} of edge 1"):
        engine.draw([torch.tensor([0])], 0)
    # What is not reached does no harm.
    assert engine.draw([torch.tensor([2])], 0).nodes[0].tolist() == [2]


@pytest.mark.parametrize("rowptr", [[0, 9, 3, 3], [0, -5, 3, 3], [2, 1, 3, 3]])
def test_damaged_rows(rowptr: list[int]) -> None:
    with pytest.raises(onehop.ArgumentError, match="row 0 has no sound bounds among 3 edges"):
        bad(rowptr=torch.tensor(rowptr)).draw([torch.tensor([0])], 0)


def test_too_few_rows() -> None:
    with pytest.raises(onehop.ArgumentError, match="expected rows for 3 nodes, got 2"):
        bad(rowptr=torch.tensor([0, 2, 3]))


def test_times_that_are_not_sorted() -> None:
    engine = bad(edge_time=torch.tensor([5, 1, 0]))
    with pytest.raises(onehop.ArgumentError, match="edges of node 0 are not sorted by time"):
        engine.draw([torch.tensor([0])], 0, times=[torch.tensor([9])])


def test_no_weight_to_draw_by() -> None:
    with pytest.raises(onehop.ArgumentError, match="weights of node 0's edges are all 0"):
        star(3, 2, [0.0, 0.0, 0.0], replace=True).draw([torch.tensor([0])], 0)
    assert draws(star(3, 3, [0.0, 0.0, 0.0]), 1).total() == 3


def test_times_are_needed_where_the_graph_has_some() -> None:
    engine = bad(edge_time=torch.tensor([1, 5, 0]))
    for times in (None, [None]):
        with pytest.raises(onehop.ArgumentError, match="time: the seeds need times"):
            engine.draw([torch.tensor([0])], 0, times=times)
    assert engine.draw([None], 0).edges[0].numel() == 0
    for time in (torch.tensor([1, 2]), torch.tensor([1.0])):
        with pytest.raises(onehop.ArgumentError, match=r"time: expected \[1\] integers"):
            engine.draw([torch.tensor([0])], 0, times=[time])
    relation = Relation(
        "edges", torch.tensor([0, 0]), torch.tensor([0]), 0, 0, (1,), edge_time=torch.tensor([0])
    )
    with pytest.raises(onehop.ArgumentError, match="disjoint: with times"):
        Engine([1], [relation], Choices(1)).draw([torch.tensor([0])], 0, times=[torch.tensor([0])])


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("rowptr", torch.tensor([0, 2, 3, 3], dtype=torch.int32)),
        ("col", torch.tensor([1, 2, 0], dtype=torch.int16)),
        ("col", torch.tensor([1, 1, 2, 2, 0, 0])[::2]),
        ("weight", torch.ones(3)),
        ("weight", torch.ones(2).double()),
        ("edge_time", torch.zeros(2, dtype=torch.int64)),
        ("src_time", torch.zeros(2, dtype=torch.int64)),
    ],
    ids=str,
)
def test_arrays_that_native_code_would_misread(name: str, array: torch.Tensor) -> None:
    with pytest.raises(onehop.ArgumentError, match=f"edges: expected {name} of .* entries or more"):
        bad(**{name: array})


def test_too_many_nodes() -> None:
    with pytest.raises(onehop.ArgumentError, match="num_nodes: 2147483648 are more than the 2147483647"):
        Engine([2**31], [], Choices(1))


def test_after_an_error_the_engine_goes_on() -> None:
    engine = star(50, 7)
    with pytest.raises(onehop.IndexRangeError):
        engine.draw([torch.tensor([0, 99])], 0)
    assert plain(engine.draw([torch.tensor([0])], 3)) == plain(star(50, 7).draw([torch.tensor([0])], 3))


@pytest.mark.parametrize(
    "seeds",
    [torch.tensor([[0]]), torch.tensor([0.0]), torch.tensor([True, False])],
    ids=["shape", "floats", "mask"],
)
def test_seeds_that_are_no_numbers_of_nodes(seeds: torch.Tensor) -> None:
    with pytest.raises(onehop.ArgumentError, match=r"seeds: expected integers \[n\]"):
        star(3, 1).draw([seeds], 0)


@pytest.mark.parametrize("fan_out", [[-2], [1.5], 3, [True], "5"], ids=str)
def test_fan_outs(fan_out: object) -> None:
    with pytest.raises(onehop.ArgumentError, match="num_neighbors: expected a list of integers"):
        checked_fan_out("num_neighbors", fan_out)


def test_weights_and_times_are_checked() -> None:
    for weight in (
        torch.ones(2),
        torch.ones(3, 1),
        torch.tensor([1, -1.0, 2]),
        torch.tensor([1, math.inf, 2]),
    ):
        with pytest.raises(onehop.ArgumentError, match="weight: expected"):
            checked_weight("weight", weight, 3)
    with pytest.raises(onehop.ArgumentError, match="zero or more"):
        checked_weight("weight", torch.tensor([1, math.nan, 2]), 3)
    for time in (torch.ones(2), torch.zeros(3)):
        with pytest.raises(onehop.ArgumentError, match="time: expected"):
            checked_time("time", time, 3, "an edge")


def test_memory_that_torch_moves_is_read_where_it_is_now() -> None:
    rowptr, col = torch.arange(0, 4 * 5000 + 1, 4), torch.randint(0, 5000, (4 * 5000,))
    expected = col.view(-1, 4)[:50].tolist()
    engine = Engine([5000], [Relation("edges", rowptr, col, 0, 0, (-1,))], Choices(1))
    for tensor in (None, rowptr, col):
        if tensor is not None:
            where = tensor.data_ptr()
            tensor.share_memory_()  # as when a process is spawned
            assert tensor.data_ptr() != where
            torch.full_like(tensor, -1)  # takes the memory that was freed
        batch = engine.draw([torch.arange(50)], 1)
        assert batch.nodes[0][batch.edge_index[0][0]].view(-1, 4).tolist() == expected
