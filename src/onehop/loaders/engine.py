"""The sampler, independent of a framework: it draws a batch around given seed nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError, IndexRangeError
from onehop.graph import Graph
from onehop.graph.build import MOST_NODES
from onehop.loaders.relation import Relation, checked_time, native_relation, running_sums

# Values of onehop::DrawProblem in csrc/include/onehop/sampling.hpp.
_SEED, _ROWS, _COL, _TIMES, _WEIGHT, _TOO_MANY = range(1, 7)


@dataclass(frozen=True, slots=True)
class Choices:
    """Options of how neighbours are drawn.

    Attributes:
        hops: Number of hops.
        replace: Whether an edge can be drawn more than once from the same row.
        disjoint: Whether every seed has its own nodes.
        last: Whether the latest neighbours are drawn, if there are times.
        induced: Whether a batch has all edges between its nodes, instead of only the drawn edges.
        shared: Whether the rows of a hop draw the same sources if possible, while each row draws each of its
            edges with equal probability: LABOR. Not with ``replace``, ``disjoint`` or weights.
    """

    hops: int
    replace: bool = False
    disjoint: bool = False
    last: bool = False
    induced: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """A mini-batch of sampled nodes and edges.

    Attributes:
        nodes: For each type, [n], int64: the seeds first, followed by the nodes that each hop found.
        trees: For each type, [n], int64: the number of the seed to which each node belongs; None unless
            disjoint.
        edge_index: For each relation, [2, E], int64: row 0 has sources and row 1 destinations, in the batch's
            node numbers, sorted by destination.
        edges: For each relation, [E], int64: the numbers of the edges in the relation.
        nodes_per_hop: For each type, the number of seeds, then the number of nodes that each hop found.
        edges_per_hop: For each relation, the number of edges of each hop; None for an induced subgraph.
        graphs: For each relation, the graph of ``edge_index``; None unless requested.
    """

    nodes: list[Tensor]
    trees: list[Tensor] | None
    edge_index: list[Tensor]
    edges: list[Tensor]
    nodes_per_hop: list[list[int]]
    edges_per_hop: list[list[int]] | None
    graphs: list[Graph] | None


@dataclass(frozen=True, slots=True)
class _Pool:
    """The relations in the form that native code reads.

    Attributes:
        addresses: The addresses of their tensors.
        relations: The relations.
        idle: Batch objects that are not in use; each keeps its memory for the next batch.
    """

    addresses: list[int]
    relations: list[Any]
    idle: list[native.extension.Drawing] = field(default_factory=list)

    def take(self, types: int) -> native.extension.Drawing:
        """Return a batch object for drawing, with a given number of node types."""
        try:
            return self.idle.pop()
        except IndexError:
            return native.extension.Drawing(types, self.relations)


class Engine:
    """Draws batches from a graph with one or several types of nodes and edges; usable from any thread.

    There is one relation for each edge type; its tensors must not be written to. Raises an ArgumentError if
    the relations contradict each other or ``num_nodes``, which has one number for each node type.
    """

    def __init__(self, num_nodes: Sequence[int], relations: Sequence[Relation], choices: Choices) -> None:
        self.num_nodes = tuple(num_nodes)
        self.relations = tuple(relations)
        self.choices = choices
        if any(count > MOST_NODES for count in self.num_nodes):
            raise ArgumentError(
                f"num_nodes: {max(self.num_nodes)} are more than the {MOST_NODES} that onehop numbers in 32 "
                "bits."
            )
        self._has_times = any(
            each.edge_time is not None or each.src_time is not None for each in self.relations
        )
        for relation in self.relations:
            rows = relation.rowptr.numel() - 1
            if rows < self.num_nodes[relation.dst]:
                raise ArgumentError(
                    f"{relation.name}: expected rows for {self.num_nodes[relation.dst]} nodes, got {rows}."
                )
        # Tensors that native code reads; this object keeps them alive.
        self._running = [running_sums(each) if choices.replace else None for each in self.relations]
        self._read = [each for relation in self.relations for each in relation.tensors]
        self._pool = self._made_pool()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Engine, (self.num_nodes, self.relations, self.choices))

    def draw(
        self,
        seeds: Sequence[Tensor | None],
        key: int,
        times: Sequence[Tensor | None] | None = None,
        first_trees: Sequence[int] | None = None,
        graphs: bool = False,
    ) -> Batch:
        """Draw a batch, with torch's number of threads; the batch does not depend on that number.

        Args:
            seeds: For each type, [n], integers; None means no seeds.
            key: A 64-bit number from which all random numbers are derived.
            times: For each type with seeds, [n], integers: only neighbours that are not later are drawn. None
                means no times.
            first_trees: For each type, the number of its first seed; None numbers seeds in the order of the
                types.
            graphs: Whether the batch includes its graphs.

        Raises:
            IndexRangeError: A seed, or a source in the relations, is not a node.
            ArgumentError: Seeds or times have a wrong shape or dtype, times are missing although the
                relations have times, times of edges are not sorted, or rows are damaged.
        """
        plain = [_checked_seeds(each) for each in seeds]
        bounds = self._bounds(plain, times)
        call, following = [], 0
        for number, nodes in enumerate(plain):
            of_type = native.extension.Seeds()
            of_type.node, of_type.count = native.address(nodes), nodes.numel()
            of_type.num_nodes = self.num_nodes[number]
            of_type.first_tree = following if first_trees is None else first_trees[number]
            if bounds is not None:
                of_type.time = native.address(bounds[number])
            following += nodes.numel()
            call.append(of_type)
        options = native.extension.DrawOptions()
        for choice in fields(self.choices):
            setattr(options, choice.name, getattr(self.choices, choice.name))
        options.key, options.threads = key, native.threads()
        # torch moves a tensor's memory when it shares the tensor with another process.
        if [each.data_ptr() for each in self._read] != self._pool.addresses:
            self._pool = self._made_pool()
        pool = self._pool
        drawing = pool.take(len(self.num_nodes))
        try:
            problem = drawing.draw(call, options)
            if problem[0]:
                raise self._error(*problem, plain)
            return self._batch(drawing, graphs)
        finally:
            pool.idle.append(drawing)

    def _bounds(self, seeds: list[Tensor], times: Sequence[Tensor | None] | None) -> list[Tensor] | None:
        """Return, for each type, the times of its seeds; None if there are no times."""
        if not self._has_times:
            return None
        if not self.choices.disjoint:
            raise ArgumentError("disjoint: with times, every seed must have nodes of its own; set it.")
        bounds = []
        for nodes, time in zip(seeds, times or [None] * len(seeds), strict=True):
            if time is None and nodes.numel():
                raise ArgumentError("time: the seeds need times, since the graph has times.")
            bounds.append(nodes if time is None else checked_time("time", time, nodes.numel(), "a seed"))
        return bounds

    def _made_pool(self) -> "_Pool":
        relations = [
            native_relation(relation, self.num_nodes[relation.src], running)
            for relation, running in zip(self.relations, self._running, strict=True)
        ]
        return _Pool([each.data_ptr() for each in self._read], relations)

    def _batch(self, drawing: native.extension.Drawing, graphs: bool) -> Batch:
        nodes, trees, edge_index, edges = [], [], [], []
        for number in range(len(self.num_nodes)):
            node = _integers(drawing.nodes(number))
            tree = _integers(node.numel()) if self.choices.disjoint else None
            drawing.write_nodes(number, native.address(node), 0 if tree is None else native.address(tree))
            nodes.append(node)
            if tree is not None:
                trees.append(tree)
        for number in range(len(self.relations)):
            ends, edge = _integers(2, drawing.edges(number)), _integers(drawing.edges(number))
            begin, row_bytes = native.address(ends), 8 * edge.numel()
            drawing.write_edges(number, begin, begin + row_bytes, native.address(edge), native.threads())
            edge_index.append(ends)
            edges.append(edge)
        return Batch(
            nodes=nodes,
            trees=trees if self.choices.disjoint else None,
            edge_index=edge_index,
            edges=edges,
            nodes_per_hop=[drawing.nodes_per_hop(number) for number in range(len(nodes))],
            edges_per_hop=None
            if self.choices.induced
            else [drawing.edges_per_hop(number) for number in range(len(edges))],
            graphs=[Graph(drawing.csr(number)) for number in range(len(edges))] if graphs else None,
        )

    def _error(self, problem: int, relation: int, where: int, seeds: list[Tensor]) -> ArgumentError:
        if problem == _SEED:
            return IndexRangeError(
                f"seeds: node {int(seeds[relation][where])}, seed {where}, is not in "
                f"[0, {self.num_nodes[relation]}). Check the input nodes."
            )
        if problem == _TOO_MANY:
            return ArgumentError("seeds: the batch has more than 2^31 - 1 nodes; draw fewer neighbours.")
        of = self.relations[relation]
        if problem == _ROWS:
            return ArgumentError(
                f"{of.name}: row {where} has no sound bounds among {of.col.numel()} edges: the graph was "
                "written to, or its file is damaged. Make or store it again."
            )
        if problem == _COL:
            return IndexRangeError(
                f"{of.name}: source {int(of.col[where])} of edge {where} is not in "
                f"[0, {self.num_nodes[of.src]}). Check the edges and the number of nodes."
            )
        if problem == _TIMES:
            return ArgumentError(
                f"{of.name}: the edges of node {where} are not sorted by time; omit is_sorted, or sort them "
                "by destination, then by time."
            )
        return ArgumentError(
            f"{of.name}: the weights of node {where}'s edges are all 0, so none can be drawn with "
            "replacement; remove the node's edges, or give one of them a weight."
        )


def _checked_seeds(seeds: Tensor | None) -> Tensor:
    if seeds is None:
        return _integers(0)
    if seeds.dim() != 1 or seeds.dtype.is_floating_point or seeds.is_complex() or seeds.dtype == torch.bool:
        raise ArgumentError(
            f"seeds: expected integers [n], got {seeds.dtype} of shape {list(seeds.shape)}; of a mask, "
            "give mask.nonzero().view(-1)."
        )
    return seeds.to(device="cpu", dtype=torch.int64).contiguous()


def _integers(*shape: int) -> Tensor:
    return torch.empty(*shape, dtype=torch.int64, device="cpu")
