"""Partitioning of nodes over processes: parts of equal work, with few rows to send between them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.loads import IMBALANCE, admitted, limits, loads, loads_of, sums_before
from onehop.distributed.refinement import BothWays, refined, wishes_of
from onehop.errors import ArgumentError, check_choice, integer
from onehop.graph import Graph, metis
from onehop.graph.folder import blocks_of
from onehop.graph.orders import node_orders
from onehop.graph.stored import StoredGraph

# The first row of a block, the numbers of edges of its rows, and the sources of these edges.
Blocks = Iterable[tuple[int, Tensor, Tensor]]

# Further passes gain little.
_PASSES = 4
# A node without placed neighbours goes to the part with the most room.
_ALONE = 1e-3


def streamed(blocks: Callable[[], Blocks], degrees: Tensor, parts: int) -> Tensor:
    """Partition a graph that is read block by block, with a few numbers per node in memory.

    This is linear deterministic greedy (Stanton and Kliot, KDD 2012): a node goes to the part with most of
    its neighbours, after each part's count is multiplied by its share of free room. Free room is for rows or
    for edges, whichever is scarcer. The graph is streamed several times; from the second pass on, all
    neighbours already have a part (Nishimura and Ugander, KDD 2013).

    Each call of ``blocks`` iterates over all rows again. Nodes of one block are placed together, based on the
    state before the block, so blocks should be a small share of the graph. ``degrees``, [N], are the numbers
    of edges that end in each node. Returns [N], int32.
    """
    most = limits(len(degrees), int(degrees.sum()), parts)
    # The value ``parts`` means that a node has no part yet.
    part = torch.full((len(degrees),), parts, dtype=torch.int32, device="cpu")
    load = torch.zeros(parts, 2, dtype=torch.int64, device="cpu")
    for _ in range(_PASSES):
        for first, counts, col in blocks():
            rows = slice(first, first + len(counts))
            before, work = part[rows], loads_of(counts)
            placed = before < parts
            load.index_add_(0, before[placed], -work[placed])
            near = _neighbours(counts, part.index_select(0, col), parts)
            room = 1 - (load / most).max(1).values
            part[rows] = _placed((near + _ALONE) * room.clamp_(min=0), work, load, most)
    return part


def _neighbours(counts: Tensor, part: Tensor, parts: int) -> Tensor:
    """Return [rows, parts]: the number of each row's sources in each part."""
    row = torch.repeat_interleave(torch.arange(len(counts), device="cpu"), counts)
    table = torch.bincount(row * (parts + 1) + part, minlength=len(counts) * (parts + 1))
    return table.view(-1, parts + 1)[:, :parts].double()


def _placed(score: Tensor, work: Tensor, load: Tensor, most: Tensor) -> Tensor:
    """Place the rows of a block, clearest rows first; returns [rows], int32: the best part with room.

    ``score``, [rows, parts], says how well each part suits, and is overwritten. The other arguments have one
    column for rows and one for edges: the work of each row, [rows, 2]; the load of each part, [parts, 2],
    which is updated; and the maximum load, [2].
    """
    parts = len(load)
    goal = torch.empty(len(score), dtype=torch.int32, device="cpu")
    waiting = score.max(1).values.argsort(descending=True, stable=True)
    for _ in range(parts):
        best, by_part = score[waiting].argmax(1).sort(stable=True)
        rows = waiting[by_part]
        fits = admitted(best, work[rows], load, most)
        goal[rows[fits]] = best[fits].int()
        load.index_add_(0, best[fits], work[rows[fits]])
        waiting = rows[~fits]
        if not len(waiting):
            return goal
        score[waiting, best[~fits]] = -1.0
    # These rows have more edges than any part has room for.
    for row in waiting.tolist():
        emptiest = int((load / most).max(1).values.argmin())
        goal[row] = emptiest
        load[emptiest] += work[row]
    return goal


_ROWS, _EDGES = 0, 1
_TURNS = 20


def balanced(both: BothWays, part: Tensor, parts: int) -> Tensor:
    """Balance rows and edges: nodes leave parts that have too many, and few neighbours are separated.

    Parts of equal work may differ many times in rows: a part of hubs has few rows. Parts with too many rows
    give up nodes with few edges, and parts with too many edges give up nodes with many edges, in turns. Each
    turn disturbs little of what the other has balanced, so a few turns suffice.

    Takes and returns [N], int32. The parts are within :func:`onehop.distributed.loads.limits`, or as near to
    them as the search came. A node with more edges than a part may have makes its part too large.
    """
    graph = both.graph
    most = limits(graph.num_dst, graph.num_edges, parts)
    best, least = part, _fullest(both, part, parts, most)
    for _ in range(_TURNS):
        if least <= 1:
            break
        for kind in (_ROWS, _EDGES):
            part = _relieved(both, part, parts, kind, float(most[kind]))
        fullest = _fullest(both, part, parts, most)
        if fullest < least:
            best, least = part, fullest
    return best


def _fullest(both: BothWays, part: Tensor, parts: int, most: Tensor) -> float:
    """Return the largest load, relative to its limit."""
    return float((loads(both.graph, part, parts) / most).max())


def _relieved(both: BothWays, part: Tensor, parts: int, kind: int, most: float) -> Tensor:
    """Return the parts after nodes have left the parts that have too many rows or edges."""
    graph = both.graph
    load = loads(graph, part, parts)[:, kind]
    over = load > most
    if not bool(over.any()):
        return part
    typical = graph.num_edges / graph.num_dst
    work = loads_of(graph.in_degrees)[:, kind]
    degrees = graph.in_degrees
    suits = degrees <= typical if kind == _ROWS else degrees >= max(typical, 1)
    # The goal is somewhat below the limit, so that nodes that arrive in other turns have room.
    goal_load = most * (1 + 1 / IMBALANCE) / 2
    suits &= (work <= most - float(load.min())) & over[part.long()]
    nodes = suits.nonzero().squeeze(1)
    gain, goal = wishes_of(both, nodes, part, parts, load >= goal_load)
    # Nodes for which the goal has room, sorted by their loss divided by the load that they remove.
    order = (-gain / work[nodes]).sort(stable=True).indices
    order = order[work[nodes[order]] <= most - load[goal[order]]]
    donor, by_donor = part[nodes[order]].long().sort(stable=True)
    order = order[by_donor]
    before = sums_before(donor, work[nodes[order], None], parts).squeeze(1)
    order = order[before < (load - goal_load)[donor]]
    goals, by_goal = goal[order].sort(stable=True)
    order = order[by_goal]
    limit = torch.tensor([most], device="cpu")
    fits = admitted(goals, work[nodes[order], None], load[:, None], limit)
    part = part.clone()
    part[nodes[order[fits]]] = goals[fits].int()
    return part


Method = Literal["auto", "metis", "greedy", "streamed"]
METHODS: tuple[Method, ...] = get_args(Method)

# A streamed graph is read in at least this many blocks, each of at most this many edges; a block of more than
# twice the mean is read in pieces.
_BLOCKS, _BLOCK_EDGES = 256, 1 << 22


def partition(graph: Graph | StoredGraph, parts: int, method: Method = "auto", seed: int = 0) -> Tensor:
    """Return the part of every node.

    Both rows and edges of the parts are balanced, to within a tenth if the graph allows that. "greedy" cuts
    the order of communities (:mod:`onehop.graph.orders`) into pieces; "metis" calls METIS. After either,
    nodes leave parts that have too many (:mod:`onehop.distributed.partition`), and move to the part with most
    of their neighbours as long as that part has room. "streamed" reads the rows in order, a few times, and
    keeps a few numbers per node (:mod:`onehop.distributed.partition`); it is the method for graphs that stay
    on disk. The same graph, number of parts and seed give the same parts.

    Args:
        graph: A graph with as many destinations as sources; in memory, or opened with
            :meth:`onehop.Graph.open`.
        parts: Number of parts.
        method: "metis" (needs pymetis), "greedy", "streamed", or "auto": "streamed" for a graph on disk, else
            "metis" if pymetis is installed, else "greedy".
        seed: Seed of the moves; "streamed" does not use it.

    Returns:
        [N], int32, from 0 to ``parts`` - 1.

    Raises:
        ArgumentError: The graph is bipartite, there is less than one part, the method is unknown, or the
            method needs the graph in memory.
        ConfigurationError: The method is "metis" and pymetis is not installed.

    Examples:
        >>> import onehop, torch
        >>> from onehop.distributed import partition
        >>> edges = torch.tensor([[0, 1, 2, 0, 3, 4, 5, 3, 2], [1, 2, 0, 2, 4, 5, 3, 5, 3]])
        >>> partition(onehop.Graph.from_edge_index(edges), parts=2, method="greedy")  # two triangles, 2->3
        tensor([0, 0, 0, 1, 1, 1], dtype=torch.int32)
    """
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"graph: expected as many sources as destinations, got {graph.num_src} and {graph.num_dst}; "
            "partition_types divides bipartite graphs."
        )
    parts, seed = integer("parts", parts, None), integer("seed", seed, None)
    if parts < 1:
        raise ArgumentError(f"parts: expected one or more, got {parts}.")
    check_choice("method", method, METHODS)
    if isinstance(graph, StoredGraph) and method in ("metis", "greedy"):
        raise ArgumentError(
            f"method: {method!r} needs the graph in memory; give 'streamed', or partition graph.load()."
        )
    if method == "metis":
        metis.require("method 'metis'", instead="greedy")
    if parts == 1 or graph.num_edges == 0:
        return (
            torch.arange(graph.num_dst, device="cpu")
            .mul_(parts)
            .div_(max(graph.num_dst, 1), rounding_mode="floor")
            .int()
        )
    if isinstance(graph, StoredGraph) or method == "streamed":
        return _streamed(graph, parts)
    both = BothWays(graph, graph.transpose())
    first = _metis(graph, parts) if metis.installed() and method != "greedy" else _pieces(graph, parts)
    return refined(both, balanced(both, first, parts), parts, seed)


Relation = tuple[str, str, str]
"""The type of the sources, the relation's name, and the type of the destinations, as in PyG."""


def partition_types(
    edges: Mapping[Relation, Tensor],
    num_nodes: Mapping[str, int],
    parts: int,
    method: Method = "auto",
    seed: int = 0,
) -> dict[str, Tensor]:
    """Return the part of every node of every type.

    The relations are joined into one graph of all nodes, which :func:`onehop.distributed.partition` divides.
    It balances the rows of all types together, and the edges of all relations together; a single type may be
    unbalanced.

    Args:
        edges: By relation, [2, E], int32 or int64, on the CPU, with sources in row 0 and destinations in row
            1.
        num_nodes: Number of nodes by type. A bipartite graph has two types and one relation.
        parts: Number of parts.
        method: See :func:`onehop.distributed.partition`.
        seed: See :func:`onehop.distributed.partition`.

    Returns:
        By type, [N], int32, from 0 to ``parts`` - 1.

    Raises:
        ArgumentError: A relation has a type that ``num_nodes`` lacks, or :func:`partition` raises it.
        ConfigurationError: The method is "metis" and pymetis is not installed.
        IndexRangeError: A node number is negative or too large.

    Examples:
        >>> import torch
        >>> from onehop.distributed import partition_types
        >>> edges = {("user", "rates", "film"): torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])}
        >>> partition_types(edges, {"user": 4, "film": 2}, parts=2, method="greedy")
        {'user': tensor([0, 0, 1, 1], dtype=torch.int32), 'film': tensor([0, 1], dtype=torch.int32)}
    """
    check_types(edges, num_nodes)
    first, begins = 0, {}
    for kind, nodes in num_nodes.items():
        begins[kind] = first
        first += nodes
    joined = [
        each.long() + torch.tensor([[begins[source]], [begins[target]]], device="cpu")
        for (source, _, target), each in edges.items()
    ]
    whole = Graph.from_edge_index(
        torch.cat([torch.empty(2, 0, dtype=torch.int64, device="cpu"), *joined], 1), first
    )
    owner = partition(whole, parts, method, seed)
    return {
        kind: each.clone()
        for kind, each in zip(num_nodes, owner.split(list(num_nodes.values())), strict=True)
    }


def check_types(edges: Mapping[Relation, Tensor], num_nodes: Mapping[str, int]) -> None:
    """Raise an error unless relations are named as in PyG, by types whose numbers of nodes are given.

    Raises:
        ArgumentError: A relation's name is not a triple of this form.
        IndexRangeError: A node number is negative or too large.
    """
    for relation, edge_index in edges.items():
        if not isinstance(relation, tuple) or len(relation) != len(("source", "name", "target")):
            raise ArgumentError(f"edges: expected names like ('user', 'rates', 'film'), got {relation!r}.")
        for kind in (relation[0], relation[2]):
            if kind not in num_nodes:
                raise ArgumentError(
                    f"num_nodes: expected a number for {kind!r}, as {relation} has it; got none."
                )
        # Checks the node numbers; in the joined graph, too large a number would be a node of another type.
        Graph.from_edge_index(edge_index, size=(num_nodes[relation[0]], num_nodes[relation[2]]))


def _streamed(graph: Graph | StoredGraph, parts: int) -> Tensor:
    rows = -(-graph.num_dst // _BLOCKS)
    edges = min(2 * -(-graph.num_edges // _BLOCKS), _BLOCK_EDGES)
    if isinstance(graph, StoredGraph):
        return streamed(lambda: graph.blocks(rows, edges), torch.from_numpy(np.diff(graph.rowptr)), parts)
    return streamed(lambda: blocks_of(graph.rowptr, graph.col, rows), graph.in_degrees, parts)


def _metis(graph: Graph, parts: int) -> Tensor:
    source, target = graph.edge_index()
    no_loop = source != target  # METIS does not accept loops
    ends = torch.stack([source[no_loop], target[no_loop]])
    undirected = Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), graph.num_dst)
    return metis.parts_of(undirected.rowptr, undirected.col, parts, _work(graph)).int()


def _pieces(graph: Graph, parts: int) -> Tensor:
    """Cut the order of communities into pieces of equal work."""
    work = _work(graph)
    order = node_orders(graph.csr, "community").dst.long()
    before = work[order].cumsum(0) - work[order]
    part = torch.empty(len(order), dtype=torch.int32, device="cpu")
    part[order] = (before * parts // int(work.sum())).int()
    return part


def _work(graph: Graph) -> Tensor:
    """Return [N], int64: a node's work: its edges, plus the mean number of edges for its row."""
    return graph.in_degrees + -(-graph.num_edges // graph.num_dst)
