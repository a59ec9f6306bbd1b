"""Neighbours drawn around seeds, hop by hop: a naive version of what ``csrc/sampling`` does with threads."""

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Relation:
    """Edges of one relation, in compressed sparse rows, one row per destination.

    Attributes:
        rowptr: [num_dst + 1].
        col: [E], the source of each edge.
        fan_out: For each hop, how many edges of a row are drawn; -1 means all.
        src: Number of the sources' node type.
        dst: Number of the destinations' node type.
        weight: [E]; None means that every edge is equally likely.
        edge_time: [E], ascending in each row; None means no times.
        src_time: [num_src]; the times of a row's sources must ascend. None means no times.
    """

    rowptr: Sequence[int]
    col: Sequence[int]
    fan_out: Sequence[int]
    src: int = 0
    dst: int = 0
    weight: Sequence[float] | None = None
    edge_time: Sequence[int] | None = None
    src_time: Sequence[int] | None = None

    def time(self, edge: int) -> int | None:
        """Return the time of an edge or of its source; None without times."""
        if self.edge_time is not None:
            return self.edge_time[edge]
        return None if self.src_time is None else self.src_time[self.col[edge]]


@dataclass(slots=True)
class Drawn:
    """A batch of drawn nodes and edges.

    Attributes:
        nodes: For each type, its nodes as (tree, node); the tree is 0 unless disjoint.
        edges: For each relation, its edges as (source, destination, edge); source and destination are the
            batch's node numbers.
        nodes_per_hop: For each type, the number of seeds, followed by the number of nodes that each hop
            found.
        edges_per_hop: For each relation, how many edges each hop drew.
    """

    nodes: list[list[tuple[int, int]]]
    edges: list[list[tuple[int, int, int]]]
    nodes_per_hop: list[list[int]] = field(default_factory=list)
    edges_per_hop: list[list[int]] = field(default_factory=list)


def mixed(z: int) -> int:
    """Apply SplitMix64's output function: G. Steele, D. Lea, C. Flood, OOPSLA 2014."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def stream(seed: int, number: int) -> Iterator[int]:
    """Yield random 64-bit words from one of many streams of a seed."""
    state = mixed((mixed((seed + _STEP) & _WORD) ^ ((number + 1) * _STEP)) & _WORD)
    while True:
        state = (state + _STEP) & _WORD
        yield mixed(state)


def draw(
    relations: Sequence[Relation],
    seeds: Sequence[Sequence[int]],
    *,
    key: int,
    hops: int,
    replace: bool = False,
    disjoint: bool = False,
    last: bool = False,
    induced: bool = False,
    shared: bool = False,
    times: Sequence[int] | None = None,
    first_trees: Sequence[int] | None = None,
) -> Drawn:
    """Draw a batch around seeds.

    Args:
        relations: The graph.
        seeds: For each node type, its seeds.
        key: A number from which all random numbers are derived.
        hops: Number of hops; each hop draws neighbours of the nodes that the previous hop found.
        replace: Whether an edge can be drawn more than once from the same row.
        disjoint: Whether every seed has its own tree, which shares no nodes with other trees.
        last: Whether the latest neighbours are drawn, if there are times.
        induced: Whether the batch has all edges between its nodes instead of only the drawn edges.
        shared: Whether the rows of a hop draw the sources with the smallest random numbers.
        times: For each tree, the time that no neighbour may exceed; None means no times.
        first_trees: For each node type, the number of its first seed's tree; None numbers trees in the order
            of the types.
    """
    if first_trees is None:
        first_trees = [0, *itertools.accumulate(len(of_type) for of_type in seeds)][: len(seeds)]
    nodes = [
        [(first + i if disjoint else 0, node) for i, node in enumerate(of_type)]
        for first, of_type in zip(first_trees, seeds, strict=True)
    ]
    numbers: list[dict[tuple[int, int], int]] = []
    for of_type_nodes in nodes:
        first: dict[tuple[int, int], int] = {}
        for number, node_in_tree in enumerate(of_type_nodes):
            first.setdefault(node_in_tree, number)
        numbers.append(first)
    drawn = Drawn(nodes, [[] for _ in relations])
    drawn.nodes_per_hop = [[len(of_type_nodes)] for of_type_nodes in nodes]
    drawn.edges_per_hop = [[] for _ in relations]
    begin, end = [0] * len(nodes), [len(of_type_nodes) for of_type_nodes in nodes]
    for hop in range(hops):
        for r, relation in enumerate(relations):
            fan_out = relation.fan_out[hop] if hop < len(relation.fan_out) else 0
            hop_key = next(stream(key, hop * len(relations) + r))
            shared_key = next(stream(key ^ _WORD, hop * len(seeds) + relation.src)) if shared else None
            before = len(drawn.edges[r])
            for row in range(begin[relation.dst], end[relation.dst]):
                tree_number, node = nodes[relation.dst][row]
                random = stream(hop_key, tree_number << 32 | node)
                bound = None if times is None else times[tree_number]
                for edge in _picks(relation, node, fan_out, random, replace, last, bound, shared_key):
                    source = (tree_number, relation.col[edge])
                    if source not in numbers[relation.src]:
                        numbers[relation.src][source] = len(nodes[relation.src])
                        nodes[relation.src].append(source)
                    drawn.edges[r].append((numbers[relation.src][source], row, edge))
            drawn.edges_per_hop[r].append(len(drawn.edges[r]) - before)
        begin, end = end, [len(of_type_nodes) for of_type_nodes in nodes]
        for t, per_hop in enumerate(drawn.nodes_per_hop):
            per_hop.append(end[t] - begin[t])
    if induced:
        drawn.edges = [
            _between(relation, nodes[relation.dst], numbers[relation.src]) for relation in relations
        ]
        drawn.edges_per_hop = [[] for _ in relations]
    return drawn


def _picks(
    relation: Relation,
    node: int,
    fan_out: int,
    random: Iterator[int],
    replace: bool,
    last: bool,
    bound: int | None,
    shared_key: int | None,
) -> list[int]:
    edges = list(range(relation.rowptr[node], relation.rowptr[node + 1]))
    if bound is not None:
        edges = [edge for edge in edges if (time := relation.time(edge)) is None or time <= bound]
        has_times = relation.edge_time is not None or relation.src_time is not None
        if last and has_times and fan_out > 0:
            edges = edges[-fan_out:]
    if not edges or fan_out == 0:
        return []
    if fan_out < 0 or (not replace and fan_out >= len(edges)):
        return edges
    if shared_key is not None:
        return _by_source(edges, relation.col, fan_out, shared_key)
    if relation.weight is not None:
        return _weighted(edges, relation.weight, fan_out, random, replace)
    if replace:
        return [edges[next(random) * len(edges) >> 64] for _ in range(fan_out)]
    # Robert Floyd's algorithm.
    chosen: list[int] = []
    for top in range(len(edges) - fan_out, len(edges)):
        place = next(random) * (top + 1) >> 64
        chosen.append(edges[top] if edges[place] in chosen else edges[place])
    return chosen


def _weighted(
    edges: list[int], weight: Sequence[float], fan_out: int, random: Iterator[int], replace: bool
) -> list[int]:
    if replace:
        running = list(itertools.accumulate(weight[edge] for edge in edges))
        places = (bisect.bisect_right(running, _between0and1(random) * running[-1]) for _ in range(fan_out))
        last = bisect.bisect_left(running, running[-1])
        return [edges[min(place, last)] for place in places]
    keys = []
    for edge in edges:
        exponential = -math.log(_between0and1(random))
        keys.append((exponential / weight[edge] if weight[edge] else math.inf, edge))
    return sorted(edge for _, edge in sorted(keys)[:fan_out])


def _by_source(edges: list[int], col: Sequence[int], fan_out: int, key: int) -> list[int]:
    numbers = []
    for place, edge in enumerate(edges):
        before = sum(col[other] == col[edge] for other in edges[:place])
        numbers.append((_between0and1(stream(key, before << 32 | col[edge])), edge))
    return sorted(edge for _, edge in sorted(numbers)[:fan_out])


def _between0and1(random: Iterator[int]) -> float:
    return ((next(random) >> 12) + 0.5) * 2.0**-52


def _between(
    relation: Relation, rows: list[tuple[int, int]], sources: dict[tuple[int, int], int]
) -> list[tuple[int, int, int]]:
    found = []
    for row, (tree, node) in enumerate(rows):
        for edge in range(relation.rowptr[node], relation.rowptr[node + 1]):
            source = sources.get((tree, relation.col[edge]))
            if source is not None:
                found.append((source, row, edge))
    return found
