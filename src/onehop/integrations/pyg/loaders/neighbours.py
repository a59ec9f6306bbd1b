"""PyG's ``NeighborLoader`` and ``LinkNeighborLoader`` on onehop's sampler.

PyG's ``NeighborSampler`` keeps its graph, its arguments and its way of drawing negative edges. The patch
replaces only the step that calls pyg-lib or torch-sparse, and lets the constructor run without these
packages. torch-sparse is replaced by default, because it is many times slower; pyg-lib is replaced only on
request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.loader import utils
from torch_geometric.sampler import NeighborSampler, neighbor_sampler
from torch_geometric.sampler.base import SubgraphType

from onehop.errors import ArgumentError
from onehop.graph.build import MOST_NODES
from onehop.integrations import session
from onehop.integrations.pyg.operators import has_pyg_lib
from onehop.integrations.rows import Row, replacing
from onehop.loaders.engine import Choices, Engine
from onehop.loaders.keys import batch_key, drawing_edges
from onehop.loaders.outputs import edge_index_of, heterogeneous, homogeneous, wants_graphs
from onehop.loaders.relation import Relation, checked_time, checked_weight
from onehop.loaders.seeds import draw_for, times_of
from onehop.loading import PATCH

# The attribute that onehop adds to PyG's samplers.
_ENGINE = "_onehop_engine"
# Attributes of PyG's samplers from which an engine is made, besides its choices.
_PARTS = ("colptr", "row", "colptr_dict", "row_dict", "node_time", "edge_time", "edge_weight")
# Flags of torch_geometric.typing that PyG's sampler reads.
_FLAGS = ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return [
        Row(neighbor_sampler, "torch_geometric", _Package(), torch_geometric),
        replacing(NeighborSampler, "_sample", _sample, where=draws_neighbours),
        replacing(NeighborSampler, "sample_from_edges", _sample_from_edges, where=draws_neighbours),
        numbered_by_caller(NeighborSampler, draws_neighbours),
        replacing(utils, "filter_edge_store_", _filter_edge_store),
    ]


def draws_neighbours() -> bool:
    """Return whether onehop draws neighbours: by the patch's setting; without one, if pyg-lib is missing."""
    return _chosen(otherwise=not has_pyg_lib())


def needed() -> bool:
    """Return whether onehop draws for other loaders; without a setting, if torch-sparse is missing too."""
    return _chosen(otherwise=not (has_pyg_lib() or torch_geometric.typing.WITH_TORCH_SPARSE))


def _chosen(otherwise: bool) -> bool:
    if session.now.selection is None:
        return False
    setting = session.now.settings.sampler
    return otherwise if setting is None else setting


class HasSampler:
    """A flag for torch-sparse that is true if PyG or onehop can draw."""

    def __init__(self, theirs: bool) -> None:
        self._theirs = theirs

    def __bool__(self) -> bool:
        return self._theirs or needed()


class _Typing:
    """Replaces ``torch_geometric.typing`` in the sampler's module, with flags for onehop's sampler."""

    def __getattr__(self, name: str) -> Any:
        flag = getattr(torch_geometric.typing, name)
        return draws_neighbours() or flag is True if name in _FLAGS else flag


class _Package:
    """Replaces ``torch_geometric`` in the sampler's module."""

    typing = _Typing()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch_geometric, name)


def numbered_by_caller(kind: type, ours: Callable[[], bool]) -> Row:
    """Return the row for ``edge_permutation``, which is None if onehop draws: edges are then renumbered."""
    theirs: property = vars(kind)["edge_permutation"]

    def edge_permutation(self: Any) -> Any:
        return None if ours() else theirs.fget(self)  # type: ignore[misc]

    return Row(kind, "edge_permutation", property(edge_permutation, doc=theirs.__doc__), theirs)


def relations_of(
    sampler: Any, types: Sequence[Any], edge_types: Sequence[Any], fan_outs: Mapping[Any, Sequence[int]]
) -> tuple[list[int], list[Relation]]:
    """Return the number of nodes of each type of a PyG sampler's graph, and the graph's relations.

    Args:
        sampler: A ``NeighborSampler`` or ``HGTSampler``.
        types: The node types; [None] for a homogeneous graph.
        edge_types: The edge types; [None] for a homogeneous graph.
        fan_outs: The number of neighbours that each hop draws, by the sampler's key of the edge type. As in
            PyG, a negative number means all.

    Raises:
        ArgumentError: Weights or times are not as expected.
    """
    rowptrs, cols = _arrays(sampler, "colptr"), _arrays(sampler, "row")
    node_times, edge_times, weights = (
        by_type(getattr(sampler, name, None)) for name in ("node_time", "edge_time", "edge_weight")
    )
    # The node types of both ends, and the key: the sampler's dictionaries have edge types as strings.
    ends = [
        (None,) * 3 if kind is None else (kind[0], kind[2], sampler.to_rel_type[kind]) for kind in edge_types
    ]
    counts: dict[Any, int] = {}
    for _, dst, key in ends:
        rows = rowptrs[key].numel() - 1
        counts[dst] = min(counts.get(dst, rows), rows)
    for kind in types:
        if kind not in counts:
            # No edges end in this type, so nothing is drawn from its nodes.
            counts[kind] = getattr(sampler, "num_nodes", {}).get(kind, MOST_NODES)
    relations = []
    for kind, (src, dst, key) in zip(edge_types, ends, strict=True):
        col, weight = cols[key], weights.get(key)
        edge_time, src_time = edge_times.get(key), node_times.get(src)
        if weight is not None:
            weight = checked_weight("weight_attr", weight, col.numel())
        if edge_time is not None:
            edge_time = checked_time("time_attr", edge_time, col.numel(), "an edge")
        if src_time is not None:
            src_time = checked_time("time_attr", src_time, counts[src], "a node")
        relations.append(
            Relation(
                name="edge_index" if kind is None else f"edge_index of {kind}",
                rowptr=rowptrs[key].long().contiguous(),
                # Native code reads integers of 32 and 64 bits.
                col=(col if col.dtype in (torch.int32, torch.int64) else col.long()).contiguous(),
                src=types.index(src),
                dst=types.index(dst),
                fan_out=tuple(max(count, -1) for count in fan_outs[key]),
                weight=weight,
                edge_time=edge_time,
                src_time=src_time,
            )
        )
    return [counts[kind] for kind in types], relations


def _arrays(sampler: Any, name: str) -> dict[Any, Tensor]:
    """Return an array of a PyG sampler's graph, by type."""
    by_kind = getattr(sampler, f"{name}_dict", None)
    return by_type(getattr(sampler, name) if by_kind is None else by_kind)


def by_type(tensors: Any) -> dict[Any, Tensor]:
    """Return tensors by type; a tensor of a homogeneous graph has the type None."""
    if tensors is None:
        return {}
    return tensors if isinstance(tensors, dict) else {None: tensors}


def _sample(_: Any, sampler: Any, seed: Any, seed_time: Any = None, **others: Any) -> Any:
    """Draws for ``NeighborSampler._sample``."""
    is_hetero = isinstance(seed, dict)
    # As in PyG: BidirectionalNeighborSampler passes empty seeds as floats.
    seeds = {kind: nodes.long() for kind, nodes in (seed if is_hetero else {None: seed}).items()}
    types: list[Any] = list(sampler.node_types) if is_hetero else [None]
    edge_types: list[Any] = list(sampler.edge_types) if is_hetero else [None]
    times = None
    if sampler.is_temporal:
        given_times = seed_time if is_hetero or seed_time is None else {None: seed_time}
        times = times_of(seeds, given_times, by_type(sampler.node_time))
    batch = draw_for(
        _engine_of(sampler, types, edge_types),
        types,
        seeds,
        times,
        key=batch_key,
        graphs=wants_graphs() and sampler.sample_direction == "forward",
    )
    perm = by_type(sampler.perm)
    for number, kind in enumerate(edge_types):
        if perm.get(kind) is not None:
            batch.edges[number] = perm[kind].index_select(0, batch.edges[number])
    # The results have the dtype of the sampler's graph, as in pyg-lib.
    dtype = next((t.dtype for t in _arrays(sampler, "colptr").values()), torch.int64)
    if dtype != torch.int64:
        lists = ("nodes", "edge_index", "edges", *(() if batch.trees is None else ("trees",)))
        batch = replace(batch, **{name: [t.to(dtype) for t in getattr(batch, name)] for name in lists})
    is_backward = sampler.sample_direction == "backward"
    if is_backward and is_hetero:
        edge_types = [sampler.to_restored_edge_type[kind] for kind in edge_types]
    out: Any = heterogeneous(batch, types, edge_types) if is_hetero else homogeneous(batch)
    if session.now.settings.sampler is None and torch_geometric.typing.WITH_TORCH_SPARSE:
        # The batch gets the same fields as with torch-sparse.
        out.num_sampled_nodes = out.num_sampled_edges = None
    if is_backward:
        out.row, out.col = out.col, out.row
    return out


class _EngineRecord(NamedTuple):
    """An engine, with the choices, fan-outs and tensors from which it was made."""

    arguments: Any
    parts: tuple[Any, ...]
    engine: Engine


def _engine_of(sampler: Any, types: list[Any], edge_types: list[Any]) -> Engine:
    """Return the engine of a sampler; it is made again if one of the sampler's arguments has changed."""
    is_hetero = types != [None]
    mapped = sampler.num_neighbors.get_mapped_values(sampler.edge_types if is_hetero else None)
    fan_outs = mapped if is_hetero else {None: mapped}
    choices = Choices(
        hops=max((len(fan_out) for fan_out in fan_outs.values()), default=0),
        replace=sampler.replace,
        disjoint=sampler.disjoint,
        last=sampler.temporal_strategy == "last",
        induced=sampler.subgraph_type == SubgraphType.induced,
    )
    parts = tuple(getattr(sampler, name, None) for name in _PARTS)
    arguments = (choices, {kind: tuple(fan_out) for kind, fan_out in fan_outs.items()})
    record: _EngineRecord | None = sampler.__dict__.get(_ENGINE)
    if (
        record is None
        or record.arguments != arguments
        or any(now is not then for now, then in zip(parts, record.parts, strict=True))
    ):
        if sampler.is_temporal and sampler.edge_weight is not None:
            raise ArgumentError(
                "weight_attr, time_attr: neighbours are drawn by weight or by time; give one of them."
            )
        if sampler.is_temporal and choices.induced:
            raise ArgumentError(
                "subgraph_type: an induced subgraph would hold edges that are later than the seeds; with "
                "time_attr, take 'directional'."
            )
        engine = Engine(*relations_of(sampler, types, edge_types, fan_outs), choices)
        record = sampler.__dict__[_ENGINE] = _EngineRecord(arguments, parts, engine)
    return record.engine


def _sample_from_edges(
    theirs: Callable[..., Any], sampler: Any, inputs: Any, *args: Any, **kwargs: Any
) -> Any:
    """Runs ``NeighborSampler.sample_from_edges``, with negative edges drawn by the batch's key."""
    with drawing_edges([inputs.row, inputs.col], None):
        return theirs(sampler, inputs, *args, **kwargs)


def _filter_edge_store(
    theirs: Callable[..., Any],
    store: Any,
    out_store: Any,
    row: Tensor,
    col: Tensor,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Keeps the drawn ``edge_index``, whose graph is known; PyG would stack its rows into a new tensor."""
    drawn = edge_index_of(row, col)
    if drawn is None or "edge_index" not in store or not store.edge_index.is_cpu:
        return None
    theirs(store, out_store, row, col, *args, **kwargs)
    out_store.edge_index = drawn
    return out_store  # PyG ignores the result, but None would run PyG's function again.


class Inherited:
    """An attribute of samplers that patches spawned processes; forked processes are patched already."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a call of ``patch`` if a process is being spawned, and nothing otherwise."""
        if get_spawning_popen() is None or session.now.selection is None:
            return (Inherited, ())
        return (_patched, (PATCH.provided, session.now.settings.sampler))


def _patched(patch: Callable[..., Any], sampler: bool | None) -> Inherited:
    patch(sampler=sampler)
    return Inherited()
