"""``onehop.loader``: PyG's batches, ahead of time, on any number of threads, never overwritten."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import onehop
from onehop import Graph, thresholds

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from onehop import NeighborSampler
from onehop.graph.identity import CACHE

NODES, EDGES, WIDTH = 400, 3_000, 16


@pytest.fixture(autouse=True)
def unpatched() -> Any:
    yield
    onehop.unpatch()


@pytest.fixture
def edge_index() -> Tensor:
    # The last nodes are isolated.
    return torch.randint(0, NODES - 20, (2, EDGES), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def graph(edge_index: Tensor) -> Graph:
    return Graph.from_edge_index(edge_index, NODES)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))


SAME = (
    *("edge_index", "x", "weight", "n_id", "e_id", "input_id", "batch_size"),
    *("num_sampled_nodes", "num_sampled_edges", "batch", "seed_time"),
)


def same(one: Data, other: Data) -> bool:
    pairs = [(getattr(one, key, None), getattr(other, key, None)) for key in SAME]
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("mask", [False, True])
def test_batches_are_those_of_pygs_loader(
    graph: Graph, edge_index: Tensor, x: Tensor, seed: int | None, threads: int, mask: bool
) -> None:
    weight = torch.arange(EDGES)
    data = Data(x=x, edge_index=edge_index, weight=weight)
    nodes = torch.arange(NODES) % 3 != 0
    nodes = nodes if mask else nodes.nonzero().view(-1).flip(0)
    options = {"batch_size": 50, "shuffle": True, "drop_last": True}
    theirs = NeighborLoader(
        data, [], neighbor_sampler=NeighborSampler(graph, [4, 3], seed=seed), input_nodes=nodes, **options
    )
    ours = onehop.loader(
        NeighborSampler(graph, [4, 3], seed=seed), nodes, features={"x": x}, edge_features={"weight": weight},
        threads=threads, **options,
    )  # fmt: skip
    assert len(ours) == len(theirs) == 5
    onehop.patch()
    torch.manual_seed(5)
    expected = [list(theirs) for _ in range(2)]
    torch.manual_seed(5)
    found = [list(ours) for _ in range(2)]
    assert [len(epoch) for epoch in found] == [5, 5]
    for mine, other in zip(found[0] + found[1], expected[0] + expected[1], strict=True):
        assert same(mine, other)
        assert mine.num_nodes == other.num_nodes
        nodes = mine.num_nodes
        assert CACHE.find(mine.edge_index, ("graph", nodes, nodes, True)) is not None
    assert not torch.equal(found[0][0].n_id, found[1][0].n_id)


def test_all_that_was_handed_out_stays_as_it_was(graph: Graph, tmp_path: Path) -> None:
    x = torch.arange(NODES, dtype=torch.float32)[:, None].repeat(1, WIDTH)
    np.save(tmp_path / "x.npy", x.numpy())
    loader = onehop.loader(
        NeighborSampler(graph, [5, 5]), features={"x": tmp_path / "x.npy"}, batch_size=20, threads=3, ahead=6
    )
    with thresholds.lifted():  # all of it from the pool
        kept = [(batch.x[1:, 3:5], batch.n_id[1:].clone()) for _ in range(3) for batch in loader]
    assert len(kept) == 60
    for view, nodes in kept:
        assert torch.equal(view, x[nodes, 3:5])


def test_batches_are_made_while_the_program_computes(graph: Graph, x: Tensor) -> None:
    class Watched:
        in_order = False

        def __init__(self) -> None:
            self.made, self.enough, self.threads = 0, threading.Event(), set[int]()

        def __len__(self) -> int:
            return NODES

        def rows(self, numbers: Tensor) -> Tensor:
            self.threads.add(torch.get_num_threads())
            self.made += 1
            if self.made == 4:
                self.enough.set()
            return x[numbers]

    watched = Watched()
    loader = onehop.loader(NeighborSampler(graph, [3]), features={"x": watched}, batch_size=40, ahead=3)
    iterator = iter(loader)
    next(iterator)
    # The program does nothing but wait, and three more are made; no more than these.
    assert watched.enough.wait(300)
    iterator.close()
    assert watched.made == 4
    assert watched.threads == {1}
    assert len(list(loader)) == 10


def test_an_error_of_a_thread_is_the_programs(graph: Graph, x: Tensor) -> None:
    class Broken:
        in_order = True
        requests = 0

        def __len__(self) -> int:
            return NODES

        def rows(self, numbers: Tensor) -> Tensor:
            self.requests += 1
            if 200 in numbers[:40]:
                raise OSError("the disk is gone")
            return x[numbers]

    broken = Broken()
    loader = onehop.loader(NeighborSampler(graph, [3]), features={"x": broken}, batch_size=40, ahead=4)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    # The batches that were begun ahead of it are not made: other processes no longer answer.
    assert broken.requests == 6


def test_times_and_trees(graph: Graph, edge_index: Tensor) -> None:
    time = torch.arange(EDGES)
    loader = onehop.loader(
        NeighborSampler(graph, [-1], edge_time=time), torch.arange(100), batch_size=30,
        input_time=torch.full((100,), 1500),
    )  # fmt: skip
    drawn = torch.cat([batch.e_id for batch in loader])
    expected = ((edge_index[1] < 100) & (time <= 1500)).nonzero().view(-1)
    assert torch.equal(drawn.sort().values, expected)
    batch = next(iter(loader))
    assert batch.batch[:30].tolist() == list(range(30))
    assert batch.seed_time.tolist() == [1500] * 30


def test_bidirectional_batches(graph: Graph) -> None:
    sampler = NeighborSampler(graph, [3], subgraph_type="bidirectional")
    for batch in onehop.loader(sampler, batch_size=100):
        pairs = set(map(tuple, batch.edge_index.t().tolist()))
        assert pairs == {(b, a) for a, b in pairs}


def test_no_seeds_isolated_seeds_and_no_neighbours(graph: Graph, x: Tensor) -> None:
    for shuffle in (False, True):
        nothing = onehop.loader(NeighborSampler(graph, [3]), torch.empty(0).long(), shuffle=shuffle)
        assert (len(nothing), list(nothing)) == (0, [])
    isolated = torch.arange(NODES - 20, NODES)
    for sampler in (NeighborSampler(graph, [-1, -1]), NeighborSampler(graph, [0, 5])):
        (batch,) = onehop.loader(sampler, isolated, features={"x": x}, batch_size=20)
        assert (batch.num_edges, batch.num_nodes) == (0, 20)
        assert torch.equal(batch.x, x[isolated])


def test_the_state_of_torchs_generator_does_not_depend_on_threads(graph: Graph) -> None:
    after = []
    for threads in (0, 1, 2):
        torch.manual_seed(1)
        loader = onehop.loader(NeighborSampler(graph, [3]), batch_size=50, shuffle=True, threads=threads)
        for _ in loader:
            pass
        after.append(torch.rand(3).tolist())
    assert after[0] == after[1] == after[2]


ARGUMENT, RANGE = onehop.ArgumentError, onehop.IndexRangeError
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "workers": ({"num_workers": 2}, ARGUMENT, "num_workers: expected some of batch_size"),
    "threads": ({"threads": -1}, ARGUMENT, "threads: expected an integer of 0 or more, got -1"),
    "ahead": ({"ahead": 0}, ARGUMENT, "ahead: expected an integer of 1 or more"),
    "range": ({"input_nodes": torch.tensor([0, NODES])}, RANGE, "input_nodes: nodes 0 to 400"),
    "negative": ({"input_nodes": torch.tensor([-1])}, RANGE, "input_nodes: nodes -1 to -1"),
    "floats": ({"input_nodes": torch.zeros(2)}, ARGUMENT, "expected integers or a mask"),
    "mask": ({"input_nodes": torch.ones(3).bool()}, ARGUMENT, r"or a mask \[400\]"),
    "rows": ({"features": {"x": torch.zeros(3, 2)}}, ARGUMENT, "expected 400 rows, one for each node"),
    "edges": ({"edge_features": {"w": torch.zeros(3)}}, ARGUMENT, "expected 3000 rows, one for each edge"),
    "no names": ({"features": torch.zeros(3)}, ARGUMENT, "features: expected a dictionary by name"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(graph: Graph, case: str) -> None:
    arguments, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        onehop.loader(NeighborSampler(graph, [3]), **arguments)


def test_wrong_samplers(graph: Graph) -> None:
    several = NeighborSampler({("a", "to", "a"): graph}, [3])
    for wrong in (several, graph):
        with pytest.raises(onehop.ArgumentError, match=r"sampler: expected an onehop\.NeighborSampler"):
            onehop.loader(wrong)


TRAINING = Path(__file__).with_name("limited_training.py")


@pytest.mark.parametrize("way", ["map", "memory"])
def test_features_of_three_times_the_allowed_memory(tmp_path: Path, way: str) -> None:
    command = [sys.executable, str(TRAINING), way, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if way == "memory":  # the limit is one
        assert done.returncode != 0
        assert "MemoryError" in done.stderr or "allocate" in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "trained"
