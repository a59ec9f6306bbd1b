"""PyG's loaders of neighbours, drawn by onehop's sampler.

PyG's ``NeighborSampler`` keeps its graph, its arguments and its way of drawing negative edges; only the step
that calls pyg-lib or torch-sparse is replaced, and what its constructor refuses without them is allowed.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.loader import LinkLoader, NodeLoader, utils
from torch_geometric.sampler import HGTSampler, NeighborSampler, neighbor_sampler
from torch_geometric.sampler.base import SubgraphType

from onehop.errors import ArgumentError
from onehop.integrations import session
from onehop.integrations.pyg.sampled_parts import Parts, by_type, relations_of
from onehop.integrations.rows import Row
from onehop.loaders.engine import Batch, Choices, Engine
from onehop.loaders.keys import Course, drawing_edges
from onehop.loaders.outputs import edge_index_of, heterogeneous, homogeneous, wants_graphs
from onehop.loaders.relation import Relation
from onehop.loaders.seeds import draw_for, times_of

# Attributes of a sampler of PyG's that are ours.
_ENGINE, _COURSE, _INHERITED = "_onehop_engine", "_onehop_course", "_onehop_inherited"
# What of a sampler of PyG's its engine is made of, besides its choices.
_PARTS = ("colptr", "row", "colptr_dict", "row_dict", "node_time", "edge_time", "edge_weight")
# Flags of torch_geometric.typing that its sampler looks at.
_FLAGS = ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")


class _Made(NamedTuple):
    """An engine, and what it was made for."""

    asked: Any
    parts: tuple[Any, ...]
    engine: Engine


def wanted() -> bool:
    """Return whether onehop draws: as the patch says, or else where PyG cannot."""
    if session.now.selection is None:
        return False
    asked = session.now.settings.sampler
    if asked is not None:
        return asked
    typing = torch_geometric.typing
    return not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE)


class _Typing:
    """``torch_geometric.typing`` as the sampler's module sees it: it can do all that ours can."""

    def __getattr__(self, name: str) -> Any:
        if name in _FLAGS and wanted():
            return True
        return getattr(torch_geometric.typing, name)


class _Package:
    """``torch_geometric`` as the sampler's module sees it."""

    typing = _Typing()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch_geometric, name)


def rows() -> list[Row]:
    """The rows of the patch table."""
    ends = utils.filter_edge_store_
    return [
        Row(neighbor_sampler, "torch_geometric", _Package(), torch_geometric),
        Row(NeighborSampler, "_sample", _sampling(NeighborSampler._sample), NeighborSampler._sample),
        Row(
            NeighborSampler,
            "sample_from_edges",
            _for_edges(NeighborSampler.sample_from_edges),
            NeighborSampler.sample_from_edges,
        ),
        numbered_by_caller(NeighborSampler),
        Row(utils, "filter_edge_store_", _keeping_edges(ends), ends),
        *(
            Row(kind, "__iter__", _in_epochs(kind.__iter__), kind.__iter__, inherited=True)
            for kind in (NodeLoader, LinkLoader)
        ),
    ]


def numbered_by_caller(kind: type) -> Row:
    """The row of a sampler's ``edge_permutation``: none where edges have the caller's numbers already."""
    theirs: property = vars(kind)["edge_permutation"]

    def edge_permutation(self: Any) -> Any:
        return None if wanted() else theirs.fget(self)  # type: ignore[misc]

    return Row(kind, "edge_permutation", property(edge_permutation, doc=theirs.__doc__), theirs)


def _sampling(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def _sample(self: Any, seed: Any, seed_time: Any = None, **kwargs: Any) -> Any:
        if not wanted():
            return theirs(self, seed, seed_time, **kwargs)
        return _drawn(self, seed, seed_time)

    return _sample


def _drawn(sampler: Any, seed: Any, seed_time: Any) -> Any:
    is_hetero = isinstance(seed, dict)
    # As PyG does; its BidirectionalNeighborSampler has empty seeds of floats.
    seeds = {kind: nodes.long() for kind, nodes in (seed if is_hetero else {None: seed}).items()}
    types: list[Any] = list(sampler.node_types) if is_hetero else [None]
    edge_types: list[Any] = list(sampler.edge_types) if is_hetero else [None]
    times = None
    if sampler.is_temporal:
        given = seed_time if is_hetero or seed_time is None else {None: seed_time}
        times = times_of(seeds, given, by_type(sampler.node_time))
    batch = draw_for(
        _engine_of(sampler, types, edge_types),
        types,
        seeds,
        times,
        seed=None,
        course=course_of(sampler),
        graphs=wants_graphs() and sampler.sample_direction == "forward",
    )
    perm = by_type(sampler.perm)
    for number, kind in enumerate(edge_types):
        if perm.get(kind) is not None:
            batch.edges[number] = perm[kind].index_select(0, batch.edges[number])
    batch = _in_dtype(batch, sampler)
    is_backward = sampler.sample_direction == "backward"
    if not is_hetero:
        out = homogeneous(batch)
    elif is_backward:
        out = heterogeneous(batch, types, [sampler.to_restored_edge_type[kind] for kind in edge_types])
    else:
        out = heterogeneous(batch, types, edge_types)
    if is_backward:
        out.row, out.col = out.col, out.row
    return out


def _in_dtype(batch: Batch, sampler: Any) -> Batch:
    """The batch in the dtype of the sampler's graph, as pyg-lib gives it."""
    rowptrs = by_type(sampler.colptr_dict if sampler.is_hetero else sampler.colptr)
    dtype = next((each.dtype for each in rowptrs.values()), torch.int64)
    if dtype == torch.int64:
        return batch
    return replace(
        batch,
        nodes=[each.to(dtype) for each in batch.nodes],
        trees=None if batch.trees is None else [each.to(dtype) for each in batch.trees],
        edge_index=[each.to(dtype) for each in batch.edge_index],
        edges=[each.to(dtype) for each in batch.edges],
    )


def _engine_of(sampler: Any, types: list[Any], edge_types: list[Any]) -> Engine:
    """The engine of a sampler, made anew where one of its arguments was set since."""
    is_hetero = types != [None]
    fan_outs = sampler.num_neighbors.get_mapped_values(sampler.edge_types if is_hetero else None)
    if not is_hetero:
        fan_outs = {None: fan_outs}
    choices = Choices(
        hops=max((len(fan_out) for fan_out in fan_outs.values()), default=0),
        replace=sampler.replace,
        disjoint=sampler.disjoint,
        last=sampler.temporal_strategy == "last",
        induced=sampler.subgraph_type == SubgraphType.induced,
    )
    parts = tuple(getattr(sampler, name, None) for name in _PARTS)
    asked = (choices, {kind: tuple(fan_out) for kind, fan_out in fan_outs.items()})
    made: _Made | None = sampler.__dict__.get(_ENGINE)
    if (
        made is None
        or made.asked != asked
        or any(now is not then for now, then in zip(parts, made.parts, strict=True))
    ):
        engine = Engine(*_graph_of(sampler, types, edge_types, fan_outs), choices)
        made = sampler.__dict__[_ENGINE] = _Made(asked, parts, engine)
    return made.engine


def _graph_of(
    sampler: Any, types: list[Any], edge_types: list[Any], fan_outs: dict[Any, list[int]]
) -> tuple[list[int], list[Relation]]:
    """The numbers of nodes of a sampler's types, and its relations."""
    is_hetero = types != [None]
    if sampler.is_temporal and sampler.edge_weight is not None:
        raise ArgumentError(
            "weight_attr, time_attr: neighbours are drawn by weight or by time; give one of them."
        )
    if sampler.is_temporal and sampler.subgraph_type == SubgraphType.induced:
        raise ArgumentError(
            "subgraph_type: an induced subgraph would hold edges that are later than the seeds; with "
            "time_attr, take 'directional'."
        )
    return relations_of(
        Parts(
            types=types,
            edge_types=edge_types,
            # Dictionaries have edge types as text.
            keys=[sampler.to_rel_type[kind] if is_hetero else None for kind in edge_types],
            rowptr=by_type(sampler.colptr_dict if is_hetero else sampler.colptr),
            col=by_type(sampler.row_dict if is_hetero else sampler.row),
            num_nodes=sampler.num_nodes if is_hetero else {},
            edge_time=by_type(sampler.edge_time),
            node_time=by_type(sampler.node_time),
            weight=by_type(sampler.edge_weight),
        ),
        fan_outs,
    )


class Inherited:
    """Travels with a sampler, and patches a process that is spawned with it. Forked ones are patched so."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles, for a process that is being spawned, how to patch it; for others nothing."""
        if get_spawning_popen() is None or session.now.selection is None:
            return (Inherited, ())
        return (_patched, (session.patches[0], session.now.settings.sampler))


def _patched(patch: Callable[..., Any], sampler: bool | None) -> Inherited:
    patch(sampler=sampler)
    return Inherited()


def course_of(sampler: Any) -> Course | None:
    """The epochs of a sampler of PyG's; None before a loader began one."""
    course: Course | None = sampler.__dict__.get(_COURSE)
    return course


def _course_of_loader(loader: Any) -> Course | None:
    """The epochs of a loader's sampler, if onehop draws for it."""
    sampler = getattr(loader, "node_sampler", None) or getattr(loader, "link_sampler", None)
    if isinstance(sampler, NeighborSampler | HGTSampler):
        if not wanted():
            return None
        sampler.__dict__.setdefault(_INHERITED, Inherited())
        sampler.__dict__.setdefault(_COURSE, Course())
        return course_of(sampler)
    course = getattr(sampler, "course", None)
    return course if isinstance(course, Course) else None


def _in_epochs(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def __iter__(self: Any) -> Any:
        course = _course_of_loader(self)
        if course is None:
            return theirs(self)
        course.begin(shared=self.num_workers > 0)
        iterator = theirs(self)
        # Of PyG's iterator that finishes batches in this process, or of torch's own: what torch seeds its
        # workers with, drawn from its generator.
        course.base = getattr(iterator, "iterator", iterator)._base_seed
        return iterator

    return __iter__


def _for_edges(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def sample_from_edges(self: Any, inputs: Any, neg_sampling: Any = None) -> Any:
        course = course_of(self)
        if course is None or not wanted():
            return theirs(self, inputs, neg_sampling)
        with drawing_edges([inputs.row, inputs.col], None, course):
            return theirs(self, inputs, neg_sampling)

    return sample_from_edges


def _keeping_edges(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def filter_edge_store_(
        store: Any, out_store: Any, row: Tensor, col: Tensor, index: Any, perm: Any = None
    ) -> None:
        theirs(store, out_store, row, col, index, perm)
        drawn = edge_index_of(row, col)
        if drawn is not None and "edge_index" in store and store.edge_index.is_cpu:
            out_store.edge_index = drawn

    return filter_edge_store_
