"""PyG's ``HGTLoader``: onehop draws its nodes layer by layer if torch-sparse is missing."""

from typing import Any

from torch_geometric.sampler import HeteroSamplerOutput, HGTSampler, hgt_sampler

from onehop.integrations.pyg.loaders.neighbours import HasSampler, needed, numbered_by_caller, relations_of
from onehop.integrations.rows import Row, replacing
from onehop.loaders.keys import batch_key
from onehop.loaders.layerwise import LayerwiseEngine

_ENGINE = "_onehop_layerwise"


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    has_sampler = hgt_sampler.WITH_TORCH_SPARSE
    return [
        Row(hgt_sampler, "WITH_TORCH_SPARSE", HasSampler(has_sampler), has_sampler),
        replacing(HGTSampler, "sample_from_nodes", _sample_from_nodes, where=needed),
        numbered_by_caller(HGTSampler, needed),
    ]


def _sample_from_nodes(_: Any, sampler: Any, inputs: Any) -> HeteroSamplerOutput:
    """Draws for ``HGTSampler.sample_from_nodes``."""
    types, edge_types = sampler.node_types, sampler.edge_types
    batch = _engine_of(sampler).draw(
        [inputs.node if kind == inputs.input_type else None for kind in types],
        [sampler.num_samples.get(kind, []) for kind in types],
        batch_key([inputs.node]),
    )
    row, col, edge = {}, {}, {}
    for kind, edge_index, numbers in zip(edge_types, batch.edge_index, batch.edges, strict=True):
        row[kind], col[kind] = edge_index[0], edge_index[1]
        # Edge numbers are converted to the caller's numbers.
        perm = sampler.perm.get(kind)
        edge[kind] = numbers if perm is None else perm.index_select(0, numbers)
    node = {kind: nodes for kind, nodes in zip(types, batch.nodes, strict=True) if len(nodes)}
    metadata = (inputs.input_id, inputs.time)
    return HeteroSamplerOutput(node=node, row=row, col=col, edge=edge, batch=None, metadata=metadata)


def _engine_of(sampler: Any) -> LayerwiseEngine:
    engine: LayerwiseEngine | None = sampler.__dict__.get(_ENGINE)
    if engine is None:
        fan_outs = dict.fromkeys(sampler.to_rel_type.values(), ())
        engine = LayerwiseEngine(*relations_of(sampler, sampler.node_types, sampler.edge_types, fan_outs))
        sampler.__dict__[_ENGINE] = engine
    return engine
