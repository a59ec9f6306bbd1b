"""Memory of what is made from edges and their types: HGTConv's joint edges; pairs of a type and a node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.parameter_dict import ParameterDict

from onehop import thresholds
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import remembered
from onehop.graph.lending import lend
from onehop.integrations.pyg.edges.listed import can_remember
from onehop.ops.typed import Pairs, pairs_of as pairs_at


@dataclass(frozen=True, slots=True)
class PairsOfEdges:
    """The pairs of a type and a node at both ends of edges.

    Attributes:
        sources: The pairs at the sources.
        targets: The pairs at the destinations.
        graph: From the sources' pairs to the destinations, with the edges in the caller's order.
        of_each: From the sources' pairs to the destinations' pairs, likewise.
    """

    sources: Pairs
    targets: Pairs
    graph: Graph
    of_each: Graph


def pairs_of(edge_index: Tensor, edge_type: Tensor, types: int, size: tuple[int, int]) -> PairsOfEdges | None:
    """Finds or makes the pairs of edges.

    Args:
        edge_index: [2, E], int64, on the CPU: sources above destinations.
        edge_type: [E], int64, on the CPU.
        types: Number of types.
        size: (num_src, num_dst).

    Returns:
        None if a node or a type is out of range.
    """

    def make() -> PairsOfEdges:
        source, target = edge_index.unbind()
        sources = pairs_at("source", source, edge_type, size[0], types)
        targets = pairs_at("destination", target, edge_type, size[1], types)
        first = len(sources.nodes)
        to_nodes, to_pairs = (torch.stack([sources.of_edges, end]) for end in (target, targets.of_edges))
        return PairsOfEdges(
            sources,
            targets,
            Graph.from_edge_index(to_nodes, size=(first, size[1])),
            Graph.from_edge_index(to_pairs, size=(first, len(targets.nodes))),
        )

    try:
        return remembered(edge_index, edge_type, key=("pairs", types, size), make=make)
    except ArgumentError:
        return None


def joined(
    theirs: Callable[..., Any],
    edge_index_dict: dict[Any, Any],
    src_offset_dict: dict[Any, int],
    dst_offset_dict: dict[Any, int],
    edge_attr_dict: Any = None,
    num_nodes: int | None = None,
) -> tuple[Tensor, Tensor | None] | None:
    """PyG's ``construct_bipartite_edge_index``, which HGTConv calls every time, with a memory.

    Args:
        theirs: PyG's function.
        edge_index_dict: Edges by type.
        src_offset_dict: The first row of each type's sources.
        dst_offset_dict: The first row of each type of destinations.
        edge_attr_dict: What edges of a type have, by type; None means nothing.
        num_nodes: Number of rows.

    Returns:
        The joint edges and what they have; None if PyG's code has to run.
    """
    types = list(src_offset_dict)
    edges = [edge_index_dict[each] for each in types]
    if not edges or not all(can_remember(each, least=0) and each.dim() == 2 for each in edges):
        return None
    if sum(each.numel() for each in edges) < 2 * thresholds.now.few_edges:
        return None
    places = tuple((each, src_offset_dict[each], dst_offset_dict[each[-1]]) for each in types)

    def make() -> Tensor:
        joint: Tensor = theirs(edge_index_dict, src_offset_dict, dst_offset_dict, None, num_nodes)[0]
        return joint

    made = remembered(*edges, key=("joined", places), make=make)
    if edge_attr_dict is None:
        return lend(made), None
    values = []
    for each, of_type in zip(types, edges, strict=True):
        value = edge_attr_dict["__".join(each) if isinstance(edge_attr_dict, ParameterDict) else each]
        values.append(value if value.size(0) == of_type.size(1) else value.expand(of_type.size(1), -1))
    return lend(made), torch.cat(values)
