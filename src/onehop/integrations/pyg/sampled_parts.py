"""The graph that a sampler of PyG's keeps, as relations of onehop's sampler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from onehop.graph.build import MOST_NODES
from onehop.loaders.relation import Relation, checked_time, checked_weight


@dataclass(frozen=True, slots=True)
class Parts:
    """The graph of a sampler of PyG's. With one type of nodes and edges, both types are None.

    Attributes:
        types: The types of nodes.
        edge_types: The types of edges.
        keys: For each of them, its key in the dictionaries below.
        rowptr: [num_dst + 1], by key.
        col: [E], by key.
        num_nodes: By type, of those where no edges end.
        edge_time: [E], by key, of those that have times.
        node_time: [num_nodes], by type.
        weight: [E], by key.
    """

    types: Sequence[Any]
    edge_types: Sequence[Any]
    keys: Sequence[Any]
    rowptr: Mapping[Any, Tensor]
    col: Mapping[Any, Tensor]
    num_nodes: Mapping[Any, int]
    edge_time: Mapping[Any, Tensor] = field(default_factory=dict)
    node_time: Mapping[Any, Tensor] = field(default_factory=dict)
    weight: Mapping[Any, Tensor] = field(default_factory=dict)


def by_type(given: Any) -> dict[Any, Tensor]:
    """Tensors by type: of a sampler of one type, of type None."""
    if given is None:
        return {}
    return given if isinstance(given, dict) else {None: given}


def relations_of(parts: Parts, fan_outs: Mapping[Any, Sequence[int]]) -> tuple[list[int], list[Relation]]:
    """The number of nodes of each type, and the relations.

    Args:
        parts: The graph.
        fan_outs: By key, how many neighbours each hop draws; any negative number means all, as in PyG.

    Raises:
        ArgumentError: Weights or times are not as expected.
    """
    ends = [(None, None) if kind is None else (kind[0], kind[2]) for kind in parts.edge_types]
    counts: dict[Any, int] = {}
    for key, (_, dst) in zip(parts.keys, ends, strict=True):
        rows = parts.rowptr[key].numel() - 1
        counts[dst] = min(counts.get(dst, rows), rows)
    for kind in parts.types:
        if kind not in counts:
            # No edges end there, so its nodes are never drawn from.
            counts[kind] = parts.num_nodes.get(kind, MOST_NODES)
    relations = []
    for kind, key, (src, dst) in zip(parts.edge_types, parts.keys, ends, strict=True):
        edges = parts.col[key].numel()
        weight, edge_time = parts.weight.get(key), parts.edge_time.get(key)
        src_time = parts.node_time.get(src)
        relations.append(
            Relation(
                name="edge_index" if kind is None else f"edge_index of {kind}",
                rowptr=parts.rowptr[key].long().contiguous(),
                col=_numbers(parts.col[key]),
                src=parts.types.index(src),
                dst=parts.types.index(dst),
                fan_out=tuple(max(count, -1) for count in fan_outs[key]),
                weight=None if weight is None else checked_weight("weight_attr", weight, edges),
                edge_time=None
                if edge_time is None
                else checked_time("time_attr", edge_time, edges, "an edge"),
                src_time=None
                if src_time is None
                else checked_time("time_attr", src_time, counts[src], "a node"),
            )
        )
    return [counts[kind] for kind in parts.types], relations


def _numbers(col: Tensor) -> Tensor:
    """The same in a dtype that native code reads."""
    return (col if col.dtype in (torch.int32, torch.int64) else col.long()).contiguous()
