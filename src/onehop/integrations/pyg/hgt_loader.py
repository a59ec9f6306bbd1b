"""PyG's ``HGTLoader``, whose layers of nodes onehop draws where torch-sparse is missing."""

import functools
from collections.abc import Callable
from typing import Any

from torch_geometric.sampler import HeteroSamplerOutput, HGTSampler, hgt_sampler

from onehop.integrations.pyg.neighbours import course_of, numbered_by_caller, wanted
from onehop.integrations.pyg.sampled_parts import Parts, relations_of
from onehop.integrations.rows import Row
from onehop.loaders.keys import batch_key
from onehop.loaders.layerwise import LayerwiseEngine

_ENGINE = "_onehop_layerwise"


class _HasSampler:
    """Says that there is a sampler, where PyG's module asks for torch-sparse."""

    def __init__(self, theirs: bool) -> None:
        self._theirs = theirs

    def __bool__(self) -> bool:
        return self._theirs or wanted()


def rows() -> list[Row]:
    """The rows of the patch table."""
    theirs = HGTSampler.sample_from_nodes
    has = hgt_sampler.WITH_TORCH_SPARSE
    return [
        Row(hgt_sampler, "WITH_TORCH_SPARSE", _HasSampler(has), has),
        Row(HGTSampler, "sample_from_nodes", _drawing(theirs), theirs),
        numbered_by_caller(HGTSampler),
    ]


def _drawing(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def sample_from_nodes(self: Any, inputs: Any) -> Any:
        if not wanted():
            return theirs(self, inputs)
        seeds = [inputs.node if kind == inputs.input_type else None for kind in self.node_types]
        batch = _engine_of(self).draw(
            seeds,
            [self.num_samples.get(kind, []) for kind in self.node_types],
            batch_key([inputs.node], None, course_of(self)),
        )
        kinds = self.edge_types
        # As the caller numbers them.
        edges = [
            numbers if self.perm.get(kind) is None else self.perm[kind].index_select(0, numbers)
            for kind, numbers in zip(kinds, batch.edges, strict=True)
        ]
        return HeteroSamplerOutput(
            node={
                kind: nodes for kind, nodes in zip(self.node_types, batch.nodes, strict=True) if len(nodes)
            },
            row={kind: ends[0] for kind, ends in zip(kinds, batch.edge_index, strict=True)},
            col={kind: ends[1] for kind, ends in zip(kinds, batch.edge_index, strict=True)},
            edge=dict(zip(kinds, edges, strict=True)),
            batch=None,
            metadata=(inputs.input_id, inputs.time),
        )

    return sample_from_nodes


def _engine_of(sampler: Any) -> LayerwiseEngine:
    made: LayerwiseEngine | None = sampler.__dict__.get(_ENGINE)
    if made is None:
        keys = [sampler.to_rel_type[kind] for kind in sampler.edge_types]
        parts = Parts(
            types=sampler.node_types,
            edge_types=sampler.edge_types,
            keys=keys,
            rowptr=sampler.colptr_dict,
            col=sampler.row_dict,
            num_nodes={},
        )
        made = LayerwiseEngine(*relations_of(parts, dict.fromkeys(keys, ())))
        sampler.__dict__[_ENGINE] = made
    return made
