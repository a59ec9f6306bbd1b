"""``onehop.NeighborSampler``: PyG's sampler of neighbours over a :class:`onehop.Graph`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError, check_choice, integer
from onehop.extras import needed
from onehop.graph import Graph, StoredGraph
from onehop.loaders.engine import Choices, Engine
from onehop.loaders.keys import batch_key, drawing_edges
from onehop.loaders.relation import Relation, checked_fan_out, checked_time, checked_weight
from onehop.loaders.seeds import draw_for, times_of


@dataclass(frozen=True, slots=True)
class Arrays:
    """Edges in compressed sparse rows, one row per destination.

    Attributes:
        rowptr: [num_dst + 1], int64.
        col: [E], int32: the source of each edge.
        perm: [E], int32 or int64: the caller's number of each edge; None if both orders are the same.
    """

    rowptr: Tensor
    col: Tensor
    perm: Tensor | None

    def in_rows(self, values: Tensor) -> Tensor:
        """Return [E]: one value per edge, given in the caller's order, in the order of the rows."""
        return values if self.perm is None else values[self.perm.long()]

    def numbers(self, edges: Tensor) -> Tensor:
        """Return [n], int64: the caller's numbers of edges that are given by their positions in the rows."""
        return edges if self.perm is None else self.perm[edges].long()

    def by_time(self, time: Tensor) -> "Arrays":
        """Return the rows with each row's edges sorted by their times, [E], which are given row by row."""
        counts = self.rowptr.diff().numpy()
        row = np.repeat(np.arange(len(counts)), counts)
        order = torch.from_numpy(np.lexsort((time.numpy(), row)))
        return Arrays(self.rowptr, self.col[order], self.numbers(order))


def arrays_of(name: str, graph: Graph | StoredGraph) -> Arrays:
    """Return the arrays of a graph; arrays of a stored graph are mapped and stay on disk.

    Raises an ArgumentError if it is not a graph.
    """
    if isinstance(graph, Graph):
        return Arrays(graph.rowptr, graph.col, graph.perm)
    if isinstance(graph, StoredGraph):
        return Arrays(_mapped(graph.rowptr_file), _mapped(graph.col_file), None)
    raise ArgumentError(
        f"{name}: expected a Graph, a StoredGraph, or a dictionary of them by (source, relation, "
        f"destination), got {type(graph).__name__}. Make one with onehop.Graph.from_edge_index(edge_index)."
    )


def _mapped(file: Path) -> Tensor:
    """Return a private map, because torch warns about arrays that it cannot write to; no code writes here."""
    # An empty array cannot be mapped; a file no larger than the header is empty.
    empty = file.stat().st_size <= 128
    return torch.from_numpy(np.load(file, mmap_mode=None if empty else "c", allow_pickle=False))


with needed("onehop.NeighborSampler", "pyg"):
    from torch_geometric.sampler import (
        BaseSampler,
        EdgeSamplerInput,
        HeteroSamplerOutput,
        NegativeSampling,
        NodeSamplerInput,
        SamplerOutput,
    )
    from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

    from onehop.loaders.outputs import EdgeType, heterogeneous, homogeneous, wants_graphs

# Names of the types in a graph with one type of nodes and edges.
_NODE, _EDGE = "", ("", "", "")
Method = Literal["uniform", "labor"]
SubgraphType = Literal["directional", "bidirectional", "induced"]
TemporalStrategy = Literal["uniform", "last"]


class NeighborSampler(BaseSampler):  # type: ignore[misc]
    """Draws the neighbours of seeds, hop by hop, for PyG's ``NeighborLoader`` and ``LinkNeighborLoader``.

    Pass it to them as ``neighbor_sampler=``. Neither pyg-lib nor torch-sparse is needed. The edges of a batch
    are sorted by destination. If the batch is used in the process that drew it, patched layers know its
    graph.

    Args:
        graph: The graph, in memory or stored; or a dictionary of graphs by edge type, (source, relation,
            destination).
        num_neighbors: For each hop, how many neighbours of a node are drawn; -1 means all. Or a dictionary of
            these lists by edge type.
        method: "uniform": nodes draw their neighbours independently of each other. "labor": the nodes of a
            hop draw the same neighbours if possible, so that a batch has fewer nodes. For each node, any
            ``num_neighbors`` of its neighbours have the same probability as with "uniform", so means over
            them have the same expectation and variance. Not with ``replace``, ``disjoint``, times or weights.
            Source: M. Balin and U. Catalyurek, "Layer-neighbor sampling", NeurIPS 2023 (LABOR-0, where
            sequential Poisson sampling gives exactly the requested number of neighbours).
        replace: Whether a neighbour can be drawn more than once.
        subgraph_type: "directional": the drawn edges; "bidirectional": the drawn edges in both directions;
            "induced": all edges between the nodes of the batch.
        disjoint: Whether every seed has its own nodes, and batches say to which seed a node belongs; always
            true with times.
        temporal_strategy: "uniform" draws among the neighbours that are not later than the seed; "last" takes
            the latest of them.
        node_time: [num_nodes], integers; or a dictionary by node type. None means no times.
        edge_time: [E], integers, in the order of the graph's edges; or a dictionary by edge type. None means
            no times.
        weight: [E], or a dictionary by edge type: neighbours are drawn in proportion to the weights of their
            edges. None means equal weights.
        seed: A number on which the batch's neighbours depend, together with its seed nodes: the same batch
            then has the same neighbours in every epoch and process, with any number of threads. None means
            that they depend on torch's generator; in patched loaders, on the seed that the generator gave the
            epoch, and on the batch's number.

    Raises:
        ArgumentError: An argument is not as described, or arguments contradict each other.

    Examples:
        >>> import onehop, torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.loader import NeighborLoader
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])  # a ring
        >>> sampler = onehop.NeighborSampler(onehop.Graph.from_edge_index(edge_index), num_neighbors=[-1])
        >>> data = Data(x=torch.arange(4.0).unsqueeze(1), edge_index=edge_index)
        >>> for batch in NeighborLoader(data, None, neighbor_sampler=sampler, batch_size=2):
        ...     print(batch.n_id.tolist(), batch.edge_index.tolist())
        [0, 1, 3] [[2, 0], [0, 1]]
        [2, 3, 1] [[2, 0], [0, 1]]
    """

    def __init__(
        self,
        graph: Graph | StoredGraph | Mapping[EdgeType, Graph | StoredGraph],
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        *,
        method: Method = "uniform",
        replace: bool = False,
        subgraph_type: SubgraphType = "directional",
        disjoint: bool = False,
        temporal_strategy: TemporalStrategy = "uniform",
        node_time: Tensor | Mapping[str, Tensor] | None = None,
        edge_time: Tensor | Mapping[EdgeType, Tensor] | None = None,
        weight: Tensor | Mapping[EdgeType, Tensor] | None = None,
        seed: int | None = None,
    ) -> None:
        check_choice("method", method, get_args(Method))
        check_choice("subgraph_type", subgraph_type, get_args(SubgraphType))
        check_choice("temporal_strategy", temporal_strategy, get_args(TemporalStrategy))
        temporal = node_time is not None or edge_time is not None
        _check_together(
            subgraph_type, weighted=weight is not None, by_node=node_time is not None, temporal=temporal
        )
        if method == "labor" and (replace or disjoint or temporal or weight is not None):
            raise ArgumentError(
                "method: 'labor' lets nodes share neighbours, each as likely as any other and once; omit "
                "replace, disjoint, times and weight, or take 'uniform'."
            )
        if node_time is not None and edge_time is not None:
            raise ArgumentError("node_time, edge_time: times are of nodes or of edges; give one of them.")
        self.is_hetero = isinstance(graph, Mapping)
        graphs = graph if isinstance(graph, Mapping) else {_EDGE: graph}
        self.edge_types = tuple(graphs)
        self.node_types = tuple(dict.fromkeys(end for kind in graphs for end in (kind[0], kind[-1])))
        sizes = _sizes(graphs)
        self.num_nodes: int | dict[str, int] = sizes if self.is_hetero else sizes[_NODE]
        fan_outs = self._fan_outs(num_neighbors)
        times = _by_type("node_time", node_time, self.is_hetero, self.node_types)
        self._node_time = {
            kind: checked_time("node_time", time, sizes[kind], "a node") for kind, time in times.items()
        }
        edge_times = _by_type("edge_time", edge_time, self.is_hetero, self.edge_types)
        weights = _by_type("weight", weight, self.is_hetero, self.edge_types)
        self._arrays: list[Arrays] = []
        relations = []
        for kind, each in graphs.items():
            arrays = arrays_of("graph", each)
            of_edges = src_time = of_weights = None
            if kind in edge_times:
                given = checked_time("edge_time", edge_times[kind], each.num_edges, "an edge")
                arrays = arrays.by_time(arrays.in_rows(given))
                of_edges = arrays.in_rows(given)
            elif kind[0] in self._node_time:
                src_time = self._node_time[kind[0]]
                arrays = arrays.by_time(src_time[arrays.col.long()])
            if kind in weights:
                of_weights = arrays.in_rows(checked_weight("weight", weights[kind], each.num_edges))
            self._arrays.append(arrays)
            relations.append(
                Relation(
                    name=f"graph{list(kind)}" if self.is_hetero else "graph",
                    rowptr=arrays.rowptr,
                    col=arrays.col,
                    src=self.node_types.index(kind[0]),
                    dst=self.node_types.index(kind[-1]),
                    fan_out=fan_outs[kind],
                    weight=of_weights,
                    edge_time=of_edges,
                    src_time=src_time,
                )
            )
        self._made_from = {
            "graph": graph,
            "num_neighbors": num_neighbors,
            "method": method,
            "replace": replace,
            "subgraph_type": subgraph_type,
            "disjoint": disjoint,
            "temporal_strategy": temporal_strategy,
            "node_time": node_time,
            "edge_time": edge_time,
            "weight": weight,
        }
        self.disjoint = disjoint or temporal
        self.seed = None if seed is None else integer("seed", seed, None)
        self._temporal = temporal
        self._subgraph_type = subgraph_type
        choices = Choices(
            hops=max((len(fan_out) for fan_out in fan_outs.values()), default=0),
            replace=replace,
            disjoint=self.disjoint,
            last=temporal_strategy == "last",
            induced=subgraph_type == "induced",
            shared=method == "labor",
        )
        self._engine = Engine([sizes[kind] for kind in self.node_types], relations, choices)

    def sample_from_nodes(
        self, inputs: NodeSamplerInput, **kwargs: Any
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Draw the batch around some seed nodes.

        Args:
            inputs: The seeds, with their times if there are any.
            kwargs: Ignored; PyG's interface has them.

        Returns:
            PyG's description of a batch; edge numbers refer to the order of the graph's edges.

        Raises:
            ArgumentError: The seeds are not as expected.
            IndexRangeError: A seed is not a node.
        """
        return self._finished(node_sample(inputs, self._sample))

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Draw the batch around some seed edges, which need not be in the graph.

        Args:
            inputs: The ends of the edges, with their labels and times if there are any.
            neg_sampling: How negative edges (pairs without an edge) are drawn in addition; None means no
                negative edges.

        Returns:
            The same description as :meth:`sample_from_nodes` returns.

        Raises:
            ArgumentError: The seeds are not as expected.
            IndexRangeError: A seed is not a node.
        """
        node_time: Any = self._node_time or None
        if node_time is not None and not self.is_hetero:
            node_time = node_time[_NODE]
        with drawing_edges([inputs.row, inputs.col], self.seed):
            out = edge_sample(inputs, self._sample, self.num_nodes, self.disjoint, node_time, neg_sampling)
        return self._finished(out)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments; a stored graph stays on disk and is opened again."""
        return (_made_again, (self._made_from | {"seed": self.seed},))

    @property
    def edge_permutation(self) -> None:
        """None, because edge numbers already refer to the graph's edges."""
        return None

    @property
    def num_edges(self) -> int:
        """The number of edges of all types."""
        return sum(each.col.numel() for each in self._arrays)

    def _sample(self, seed: Any, seed_time: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        seeds: dict[str, Tensor] = seed if self.is_hetero else {_NODE: seed}
        given = seed_time if self.is_hetero or seed_time is None else {_NODE: seed_time}
        batch = draw_for(
            self._engine,
            self.node_types,
            seeds,
            times_of(seeds, given, self._node_time) if self._temporal else None,
            key=partial(batch_key, seed=self.seed),
            graphs=wants_graphs(),
        )
        for number, arrays in enumerate(self._arrays):
            batch.edges[number] = arrays.numbers(batch.edges[number])
        return (
            heterogeneous(batch, self.node_types, self.edge_types) if self.is_hetero else homogeneous(batch)
        )

    def _finished(self, out: SamplerOutput | HeteroSamplerOutput) -> SamplerOutput | HeteroSamplerOutput:
        return out.to_bidirectional() if self._subgraph_type == "bidirectional" else out

    def _fan_outs(self, num_neighbors: Any) -> dict[EdgeType, tuple[int, ...]]:
        if not isinstance(num_neighbors, Mapping):
            fan_out = checked_fan_out("num_neighbors", num_neighbors)
            return dict.fromkeys(self.edge_types, fan_out)
        if set(num_neighbors) != set(self.edge_types):
            raise ArgumentError(
                f"num_neighbors: expected a list, or one for each type of edges, {list(self.edge_types)}, "
                f"got {list(num_neighbors)}."
            )
        return {
            kind: checked_fan_out(f"num_neighbors[{kind}]", num_neighbors[kind]) for kind in self.edge_types
        }

    def __repr__(self) -> str:
        return f"NeighborSampler(num_nodes={self.num_nodes}, hops={self._engine.choices.hops})"


def _made_again(arguments: dict[str, Any]) -> NeighborSampler:
    return NeighborSampler(**arguments)


def _check_together(subgraph_type: str, *, weighted: bool, by_node: bool, temporal: bool) -> None:
    if weighted and temporal:
        raise ArgumentError(
            f"weight, {'node_time' if by_node else 'edge_time'}: neighbours are drawn by weight or by time; "
            "give one of them."
        )
    if temporal and subgraph_type == "induced":
        raise ArgumentError(
            "subgraph_type: an induced subgraph would hold edges that are later than the seeds; with times, "
            "take 'directional'."
        )


def _sizes(graphs: Mapping[EdgeType, Graph | StoredGraph]) -> dict[str, int]:
    """Return the number of nodes of each type."""
    sizes: dict[str, int] = {}
    for kind, graph in graphs.items():
        if not (isinstance(kind, tuple) and len(kind) == 3):
            raise ArgumentError(f"graph: expected keys (source, relation, destination), got {kind!r}.")
        arrays_of("graph", graph)
        for end, count in ((kind[0], graph.num_src), (kind[-1], graph.num_dst)):
            if sizes.setdefault(end, count) != count:
                nodes = f"nodes of type {end!r}" if end else "nodes"
                raise ArgumentError(
                    f"graph: it has {sizes[end]} {nodes} on one side and {count} on another; give "
                    "size=(num_src, num_dst) when you make it."
                )
    if not sizes:
        raise ArgumentError("graph: expected at least one type of edges.")
    return sizes


def _by_type(name: str, given: Any, is_hetero: bool, known: Sequence[Any]) -> dict[Any, Tensor]:
    """Return the given tensors by type; empty if none is given."""
    if given is None:
        return {}
    if is_hetero is not isinstance(given, Mapping):
        expected = f"a dictionary by {list(known)}" if is_hetero else "a tensor"
        raise ArgumentError(f"{name}: expected {expected}, got {type(given).__name__}.")
    by_type = dict(given) if is_hetero else {known[0]: given}
    for kind, tensor in by_type.items():
        if kind not in known:
            raise ArgumentError(f"{name}: {kind!r} is unknown; there are {list(known)}.")
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentError(f"{name}: expected tensors, got {type(tensor).__name__}.")
    return by_type
