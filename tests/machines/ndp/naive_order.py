"""Orders of targets, and counts in an order, spelt out: what the units list and the host merges."""

from types import SimpleNamespace

import numpy as np

from onehop.machines.ndp.mapping import owners


def sources(graph, target):
    """Sources of a target, repeated ones included."""
    rowptr, col = graph.rowptr.tolist(), graph.col.tolist()
    return col[rowptr[target] : rowptr[target + 1]]


def naive_order(graph, topology, retile, batch):
    """Targets in the order of a re-tiled graph."""
    owner = owners(topology, graph.num_src)
    listed, order, lists = set(), [], [[] for _ in range(topology.ranks)]

    def merge():
        if retile == "round_robin":
            for turn in range(max(map(len, lists))):
                order.extend(one[turn] for one in lists if turn < len(one))
        else:
            order.extend(node for one in lists for node in one)
        for one in lists:
            one.clear()

    for target in range(graph.num_dst):
        for source in sources(graph, target):
            if source not in listed:
                listed.add(source)
                lists[owner[source]].append(source)
                if retile != "rows" and sum(map(len, lists)) == batch:
                    merge()
        if retile == "rows":
            merge()
    merge()
    return [*order, *(node for node in range(graph.num_dst) if node not in listed)]


def naive_scans(graph, owner, retile, batch, ranks):
    """What the units read until each batch is listed: rows, and edges by rank."""
    batches = -(-graph.num_dst // batch)
    found = [SimpleNamespace(rows=0, edges=[0] * ranks) for _ in range(batches)]
    listed = set()

    def open_batch():
        return found[min(len(listed) // batch, batches - 1)]

    for target in range(graph.num_dst):
        at = open_batch()
        at.rows += 1
        for source in sources(graph, target):
            # Lists are merged row by row at the end of a row, in other orders as soon as a batch is full.
            at = at if retile == "rows" else open_batch()
            at.edges[owner(source)] += 1
            listed.add(source)
    return found


def naive_counts(graph, ranks, order, rank_of, tile, window):
    """Edges, reads, bursts and touched targets by window and rank; ``rank_of`` takes an edge's ends."""
    windows = -(-graph.num_dst // window)
    edges, reads, bursts, touched = (np.zeros((windows, ranks), dtype=int) for _ in range(4))
    for first in range(0, len(order), tile):
        at, seen = first // window, set()
        for target in order[first : first + tile]:
            mine = np.zeros(ranks, dtype=int)
            for source in sources(graph, target):
                rank = rank_of(source, target)
                mine[rank] += 1
                if (source, rank) not in seen:
                    seen.add((source, rank))
                    reads[at, rank] += 1
            edges[at] += mine
            bursts[at] += -(-mine * 8 // 64)
            touched[at] += mine > 0
    return edges, reads, bursts, touched
