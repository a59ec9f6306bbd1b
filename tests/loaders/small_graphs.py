"""Small graphs of several types, as the naive sampler takes them and as the engine does."""

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st

from onehop.loaders.engine import Batch, Choices, Engine
from onehop.loaders.relation import Relation
from onehop.reference import neighbors


@dataclass
class Case:
    """A graph, seeds, and how neighbours are drawn."""

    num_nodes: list[int]
    relations: list[neighbors.Relation]
    seeds: list[list[int]]
    hops: int
    key: int
    times: list[int] | None = None
    options: dict[str, bool] = field(default_factory=dict)

    def naive(self) -> neighbors.Drawn:
        return neighbors.draw(
            self.relations, self.seeds, key=self.key, hops=self.hops, times=self.times, **self.options
        )

    def engine(self, wide: bool = False) -> Engine:
        relations = [
            Relation(
                name=f"relation {number}",
                rowptr=torch.tensor(each.rowptr),
                col=torch.tensor(each.col, dtype=torch.int64 if wide else torch.int32),
                src=each.src,
                dst=each.dst,
                fan_out=tuple(each.fan_out),
                weight=None if each.weight is None else torch.tensor(each.weight, dtype=torch.float64),
                edge_time=None if each.edge_time is None else torch.tensor(each.edge_time, dtype=torch.int64),
                src_time=None if each.src_time is None else torch.tensor(each.src_time, dtype=torch.int64),
            )
            for number, each in enumerate(self.relations)
        ]
        return Engine(self.num_nodes, relations, Choices(self.hops, **self.options))

    def drawn(self, engine: Engine) -> Batch:
        times = None
        if self.times is not None:
            ends = [0]
            for nodes in self.seeds:
                ends.append(ends[-1] + len(nodes))
            times = [torch.tensor(self.times[a:b], dtype=torch.int64) for a, b in itertools.pairwise(ends)]
        seeds = [torch.tensor(nodes, dtype=torch.int64) for nodes in self.seeds]
        return engine.draw(seeds, self.key, times=times, graphs=True)


def plain(batch: Batch) -> tuple[Any, ...]:
    """A batch as the naive sampler gives it."""
    trees = batch.trees or [torch.zeros_like(nodes) for nodes in batch.nodes]
    return (
        [list(zip(t.tolist(), n.tolist(), strict=True)) for t, n in zip(trees, batch.nodes, strict=True)],
        [
            list(zip(*ends.tolist(), edges.tolist(), strict=True))
            for ends, edges in zip(batch.edge_index, batch.edges, strict=True)
        ],
        batch.nodes_per_hop,
        batch.edges_per_hop,
    )


@st.composite
def cases(draw: Any) -> Case:
    """Graphs with empty rows, hubs, repeated edges and seeds, and every way of drawing."""
    chance: random.Random = draw(st.randoms(use_true_random=False))
    types = draw(st.integers(1, 3))
    num_nodes = [chance.randint(1, 40) for _ in range(types)]
    way = draw(st.sampled_from(["uniform", "weight", "edge_time", "src_time"]))
    timed = way in ("edge_time", "src_time")
    times_of = [[chance.randint(0, 9) for _ in range(count)] for count in num_nodes]
    relations = []
    for _ in range(draw(st.integers(1, 3))):
        src, dst = chance.randrange(types), chance.randrange(types)
        rowptr, col, edge_time = [0], [], []
        for _ in range(num_nodes[dst]):
            count = chance.choice([0, 1, 3, 8, 70])
            sources = [chance.randrange(num_nodes[src]) for _ in range(count)]
            if chance.randrange(2):
                sources = sorted(set(sources))
            if way == "src_time":
                sources.sort(key=times_of[src].__getitem__)
            col += sources
            edge_time += sorted(chance.randint(0, 9) for _ in sources)
            rowptr.append(len(col))
        relations.append(
            neighbors.Relation(
                rowptr,
                col,
                [chance.choice([-1, 0, 1, 2, 5, 40]) for _ in range(chance.randint(0, 3))],
                src,
                dst,
                weight=[chance.choice([0.01, 0.5, 3.25]) for _ in col] if way == "weight" else None,
                edge_time=edge_time if way == "edge_time" else None,
                src_time=times_of[src] if way == "src_time" else None,
            )
        )
    seeds = [[chance.randrange(count) for _ in range(chance.randint(0, 5))] for count in num_nodes]
    flags = {name: draw(st.booleans()) for name in ("replace", "disjoint", "last", "induced")}
    flags["disjoint"] |= timed
    flags["induced"] &= not timed
    flags["shared"] = draw(st.booleans()) and way == "uniform" and not (flags["replace"] or flags["disjoint"])
    times = [chance.randint(0, 9) for nodes in seeds for _ in nodes] if timed else None
    return Case(num_nodes, relations, seeds, draw(st.integers(0, 3)), chance.getrandbits(64), times, flags)
