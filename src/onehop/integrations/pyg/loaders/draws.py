"""The operators of pyg-lib that draw neighbours, on onehop's sampler.

PyG's own loaders do not need these operators (:mod:`.neighbours` draws for them). PyG's distributed sampler
and programs that call ``torch.ops.pyg`` use them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.integrations.pyg.loaders.neighbours import relations_of
from onehop.integrations.pyg.operators import Operator
from onehop.loaders.engine import Batch, Choices, Engine
from onehop.loaders.keys import drawn_key
from onehop.loaders.seeds import draw_for, times_of

Tensors = Mapping[Any, Tensor]
_TENSOR, _TENSORS = "Tensor? {0} = None", "Dict(str, Tensor)? {0}_dict = None"
_CHOICES = (
    "bool csc = False, bool replace = False, bool directed = True, bool disjoint = False, "
    "str temporal_strategy = 'uniform'"
)


@dataclass(frozen=True, slots=True)
class _Graph:
    """The edges that neighbours are drawn from.

    Attributes:
        types: The node types; [None] for a homogeneous graph.
        ends: By edge type, the node types of the neighbours and of the rows.
        rowptrs: By edge type, [rows + 1].
        cols: By edge type, [E].
        fan_outs: By edge type, the number of neighbours for each hop.
        node_time: By node type, [N]; empty without times.
        edge_time: By edge type, [E]; empty without times.
        edge_weight: By edge type, [E]; empty without weights.
    """

    types: Sequence[Any]
    ends: Mapping[Any, tuple[Any, Any]]
    rowptrs: Tensors
    cols: Tensors
    fan_outs: Mapping[Any, Sequence[int]]
    node_time: Tensors
    edge_time: Tensors
    edge_weight: Tensors

    def drawn(self, seeds: Tensors, seed_time: Tensors | None, choices: Choices) -> Batch:
        """Draw the batch of some seeds, with as many hops as the fan-outs have."""
        self._check()
        is_temporal = bool(self.node_time or self.edge_time)
        times = times_of(seeds, seed_time, self.node_time) if is_temporal else None
        kinds = {(src, key, dst): key for key, (src, dst) in self.ends.items()}
        arrays = SimpleNamespace(
            colptr_dict=self.rowptrs,
            row_dict=self.cols,
            node_time=self.node_time,
            edge_time=self.edge_time,
            edge_weight=self.edge_weight,
            num_nodes={kind: time.numel() for kind, time in self.node_time.items()},
            to_rel_type=kinds,
        )
        types = list(self.types)
        edge_types = [None] if types == [None] else list(kinds)
        hops = max((len(self.fan_outs[key]) for key in self.ends), default=0)
        engine = Engine(
            *relations_of(arrays, types, edge_types, self.fan_outs), dataclasses.replace(choices, hops=hops)
        )
        return draw_for(engine, types, seeds, times, key=lambda _: drawn_key(), graphs=False)

    def _check(self) -> None:
        if self.node_time and self.edge_time:
            raise ArgumentError("node_time, edge_time: times are of nodes or of edges; give one of them.")
        if (self.node_time or self.edge_time) and self.edge_weight:
            raise ArgumentError("edge_weight: neighbours are drawn by weight or by time; omit one of them.")
        missing = [str(key) for key in self.ends if key not in self.rowptrs or key not in self.fan_outs]
        if missing:
            raise ArgumentError(f"rowptr_dict, num_neighbors_dict: {', '.join(missing)} is missing.")


def neighbor_sample(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: Sequence[int],
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, list[int], list[int]]:
    """Draws neighbours around seeds, hop by hop, with torch's random number generator.

    Args:
        rowptr: [N + 1], int64 or int32: the bounds of each node's neighbours.
        col: [E], of the same dtype: the neighbours.
        seed: [n], of the same dtype.
        num_neighbors: For each hop, how many neighbours of a node are drawn; a negative number means all.
        node_time: [N], int64: neighbours later than their seed are not drawn; None without times.
        edge_time: [E], int64: edges later than their seed are not drawn; None without times.
        seed_time: [n], int64; None means the times of the nodes.
        edge_weight: [E], the weights by which edges are drawn; None means that all are equally likely.
        csc: Whether the rows belong to destinations.
        replace: Whether an edge can be drawn again from the same row.
        directed: Must be True: the edges of the result are the drawn ones.
        disjoint: Whether the nodes of different seeds are kept separate.
        temporal_strategy: "uniform", or "last" for the latest neighbours.
        return_edge_id: Whether the numbers of the edges are returned.

    Returns:
        Sources and destinations of the edges, [e] each, in the batch's numbers; the batch's nodes, [n], or,
        if disjoint, [n, 2] with the seed's number first; the numbers of the edges, [e], or None; and the
        numbers of nodes and of edges that each hop found.

    Raises:
        ArgumentError: Arguments are not as described, or contradict each other.
        IndexRangeError: A seed or a neighbour is not the number of a node.
    """
    _check_dtypes({"rowptr": rowptr, "col": col, "seed": seed})
    graph = _Graph(
        types=[None],
        ends={None: (None, None)},
        rowptrs={None: rowptr},
        cols={None: col},
        fan_outs={None: num_neighbors},
        node_time=_by_kind(None, node_time),
        edge_time=_by_kind(None, edge_time),
        edge_weight=_by_kind(None, edge_weight),
    )
    choices = _choices(replace, directed, disjoint, temporal_strategy)
    batch = graph.drawn({None: seed}, None if seed_time is None else {None: seed_time}, choices)
    (edge_index,), (edges,), dtype = batch.edge_index, batch.edges, rowptr.dtype
    row, col = _rows_of(edge_index, csc, dtype)
    return (
        row,
        col,
        _nodes_of(batch, 0, dtype),
        edges.to(dtype) if return_edge_id else None,
        batch.nodes_per_hop[0],
        _edges_per_hop(batch)[0],
    )


def hetero_neighbor_sample(
    node_types: Sequence[str],
    edge_types: Sequence[tuple[str, str, str]],
    rowptr_dict: Tensors,
    col_dict: Tensors,
    seed_dict: Tensors,
    num_neighbors_dict: Mapping[str, Sequence[int]],
    node_time_dict: Tensors | None = None,
    edge_time_dict: Tensors | None = None,
    seed_time_dict: Tensors | None = None,
    edge_weight_dict: Tensors | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Any, ...]:
    """Draws neighbours in a heterogeneous graph; takes the arguments of :func:`neighbor_sample` by type.

    The keys are node types, or edge types as strings such as "author__writes__paper".
    """
    if set(rowptr_dict) != set(col_dict):
        raise ArgumentError(
            f"rowptr_dict, col_dict: expected the same types of edges, got {sorted(rowptr_dict)} and "
            f"{sorted(col_dict)}."
        )
    named = {"rowptr_dict": rowptr_dict, "col_dict": col_dict, "seed_dict": seed_dict}
    _check_dtypes({f"{name}[{key!r}]": value for name, of in named.items() for key, value in of.items()})
    ends = {"__".join(kind): (kind[0], kind[2]) if csc else (kind[2], kind[0]) for kind in edge_types}
    graph = _Graph(
        types=node_types,
        ends=ends,
        rowptrs=rowptr_dict,
        cols=col_dict,
        fan_outs=num_neighbors_dict,
        node_time=node_time_dict or {},
        edge_time=edge_time_dict or {},
        edge_weight=edge_weight_dict or {},
    )
    choices = _choices(replace, directed, disjoint, temporal_strategy)
    batch = graph.drawn(seed_dict, seed_time_dict, choices)
    dtype = next(iter(rowptr_dict.values())).dtype
    rows = [_rows_of(edge_index, csc, dtype) for edge_index in batch.edge_index]
    return (
        {key: row for key, (row, _) in zip(ends, rows, strict=True)},
        {key: col for key, (_, col) in zip(ends, rows, strict=True)},
        {kind: _nodes_of(batch, number, dtype) for number, kind in enumerate(node_types)},
        {key: edges.to(dtype) for key, edges in zip(ends, batch.edges, strict=True)}
        if return_edge_id
        else None,
        dict(zip(node_types, batch.nodes_per_hop, strict=True)),
        dict(zip(ends, _edges_per_hop(batch), strict=True)),
    )


def dist_neighbor_sample(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: int,
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
) -> tuple[Tensor, Tensor, list[int]]:
    """Draws the neighbours of seeds over one hop; a node that is drawn several times is listed each time.

    Args:
        rowptr: As in :func:`neighbor_sample`. Neighbours may be of another type than seeds.
        col: As in :func:`neighbor_sample`.
        seed: As in :func:`neighbor_sample`.
        num_neighbors: How many neighbours of a seed are drawn.
        node_time: As in :func:`neighbor_sample`, [nodes of the neighbours' type].
        edge_time: As in :func:`neighbor_sample`.
        seed_time: As in :func:`neighbor_sample`.
        edge_weight: As in :func:`neighbor_sample`.
        csc: Has no effect.
        replace: As in :func:`neighbor_sample`.
        directed: As in :func:`neighbor_sample`.
        disjoint: Whether each node is preceded by the number of its seed.
        temporal_strategy: As in :func:`neighbor_sample`.

    Returns:
        The seeds, followed by the neighbours of each seed, [n + e] or [n + e, 2]; the numbers of the edges,
        [e]; and n + 1 bounds: the begin of each seed's neighbours among the nodes, and the end of the last.

    Raises:
        ArgumentError: As :func:`neighbor_sample`.
        IndexRangeError: As :func:`neighbor_sample`.
    """
    _check_dtypes({"rowptr": rowptr, "col": col, "seed": seed})
    if (node_time is not None or edge_time is not None) and not disjoint:
        raise ArgumentError("disjoint: with times, every seed must have nodes of its own; set it.")
    if seed_time is None and node_time is not None:
        seed_time = times_of({None: seed}, None, {None: node_time})[None]
    graph = _Graph(
        types=["seeds", "neighbours"],
        ends={"edges": ("neighbours", "seeds")},
        rowptrs={"edges": rowptr},
        cols={"edges": col},
        fan_outs={"edges": [num_neighbors]},
        node_time=_by_kind("neighbours", node_time),
        edge_time=_by_kind("edges", edge_time),
        edge_weight=_by_kind("edges", edge_weight),
    )
    # Each seed has separate nodes, so that draws for a seed that is given twice are independent.
    choices = _choices(replace, directed, True, temporal_strategy)
    batch = graph.drawn({"seeds": seed}, None if seed_time is None else {"seeds": seed_time}, choices)
    (source, target), (edges,) = batch.edge_index[0], batch.edges
    nodes = torch.cat([seed.long(), batch.nodes[1][source]])
    if disjoint:
        nodes = torch.stack([torch.cat([torch.arange(seed.numel(), device="cpu"), target]), nodes], dim=1)
    counts = torch.bincount(target, minlength=seed.numel())
    bounds = torch.cat([counts.new_zeros(1), counts.cumsum(0)]) + seed.numel()
    return nodes.to(rowptr.dtype), edges.to(rowptr.dtype), bounds.tolist()


def _by_kind(kind: Any, tensor: Tensor | None) -> dict[Any, Tensor]:
    return {} if tensor is None else {kind: tensor}


def _choices(replace: bool, directed: bool, disjoint: bool, temporal_strategy: str) -> Choices:
    if not directed:
        raise ArgumentError(
            "directed: expected True. Induced subgraphs are drawn by onehop.NeighborSampler(..., "
            "subgraph_type='induced')."
        )
    if temporal_strategy not in ("uniform", "last"):
        raise ArgumentError(f"temporal_strategy: expected 'uniform' or 'last', got {temporal_strategy!r}.")
    return Choices(hops=0, replace=replace, disjoint=disjoint, last=temporal_strategy == "last")


def _rows_of(edge_index: Tensor, csc: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the two rows of edges as copies, because an operator's results must not share memory."""
    source, target = (numbers.to(dtype, copy=True) for numbers in edge_index)
    return (source, target) if csc else (target, source)


def _nodes_of(batch: Batch, number: int, dtype: torch.dtype) -> Tensor:
    nodes = batch.nodes[number]
    return (nodes if batch.trees is None else torch.stack([batch.trees[number], nodes], dim=1)).to(dtype)


def _edges_per_hop(batch: Batch) -> list[list[int]]:
    assert batch.edges_per_hop is not None  # because the edges are drawn, not induced
    return batch.edges_per_hop


def _check_dtypes(tensors: Mapping[str, Tensor]) -> None:
    """Raises unless all tensors are contiguous vectors of one integer dtype."""
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) > 1 or not dtypes <= {torch.int32, torch.int64}:
        dtypes_by_name = ", ".join(f"{name} {tensor.dtype}" for name, tensor in tensors.items())
        raise ArgumentError(f"expected int64 or int32 tensors of one dtype, got {dtypes_by_name}.")


_OF_TIMES = ", ".join(map(_TENSOR.format, ("node_time", "edge_time", "seed_time", "edge_weight")))
_OF_TYPES = ", ".join(map(_TENSORS.format, ("node_time", "edge_time", "seed_time", "edge_weight")))
OPERATORS = (
    Operator(
        f"neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int[] num_neighbors, {_OF_TIMES}, "
        f"{_CHOICES}, bool return_edge_id = True) -> (Tensor, Tensor, Tensor, Tensor?, int[], int[])",
        neighbor_sample,
    ),
    Operator(
        "hetero_neighbor_sample(str[] node_types, (str, str, str)[] edge_types, "
        "Dict(str, Tensor) rowptr_dict, Dict(str, Tensor) col_dict, Dict(str, Tensor) seed_dict, "
        f"Dict(str, int[]) num_neighbors_dict, {_OF_TYPES}, {_CHOICES}, bool return_edge_id = True) -> "
        "(Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor)?, Dict(str, int[]), "
        "Dict(str, int[]))",
        hetero_neighbor_sample,
        "BackendSelect",
    ),
    Operator(
        f"dist_neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int num_neighbors, {_OF_TIMES}, "
        f"{_CHOICES}) -> (Tensor, Tensor, int[])",
        dist_neighbor_sample,
    ),
)
"""The operators, with pyg-lib's schemas."""
