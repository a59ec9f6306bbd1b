"""Edges of several types as those of one graph, remembered: HGTConv joins them at every call."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.parameter_dict import ParameterDict

from onehop import thresholds
from onehop.graph.identity import CACHE
from onehop.graph.lending import lend
from onehop.integrations.pyg.derived import can_remember
from onehop.integrations.rows import stand_in
from onehop.ops.contexts import compiling

Join = Callable[..., Any]

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class _Joined:
    """A note on each of the edge_index tensors: which joint edges were made of them last.

    Attributes:
        number: Of the joint edges.
        edges: [2, E], the joint edges, which nobody else has; held by the first note alone.
    """

    number: int
    edges: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the edges."""
        return 0 if self.edges is None else self.edges.nbytes


def remembering_join(theirs: Join) -> Join:
    """PyG's ``construct_bipartite_edge_index`` with a memory."""
    ours, in_program = join, compiling

    def construct_bipartite_edge_index(  # type: ignore[no-untyped-def]
        edge_index_dict, src_offset_dict, dst_offset_dict, edge_attr_dict=None, num_nodes=None
    ):
        found = (
            None
            if in_program()
            else ours(theirs, edge_index_dict, src_offset_dict, dst_offset_dict, num_nodes)
        )
        if found is None:
            return theirs(edge_index_dict, src_offset_dict, dst_offset_dict, edge_attr_dict, num_nodes)
        edges, attributes = found
        return edges, None if edge_attr_dict is None else attributes(edge_attr_dict)

    return stand_in(theirs, construct_bipartite_edge_index)


def join(
    theirs: Join,
    edge_index_dict: dict[Any, Any],
    src_offset_dict: dict[Any, int],
    dst_offset_dict: dict[Any, int],
    num_nodes: int | None,
) -> tuple[Tensor, Callable[[Any], Tensor]] | None:
    """The joint edges from memory, and what makes their attributes; None if PyG's code is to run.

    Args:
        theirs: PyG's function, and what it gets:
        edge_index_dict: Edges by type,
        src_offset_dict: the first row of each type's sources,
        dst_offset_dict: that of each type of destinations, and
        num_nodes: how many rows there are.
    """
    types = list(src_offset_dict)
    edges = [edge_index_dict[each] for each in types]
    if not edges or not all(can_remember(each, least=0) and each.dim() == 2 for each in edges):
        return None
    if sum(each.numel() for each in edges) < 2 * thresholds.now.few_edges:
        return None
    key = ("joined", tuple((each, src_offset_dict[each], dst_offset_dict[each[-1]]) for each in types))
    notes: list[_Joined | None] = [CACHE.find(each, (key, place)) for place, each in enumerate(edges)]
    first = notes[0]
    if first is None or any(note is None or note.number != first.number for note in notes):
        with torch.inference_mode(False), torch.no_grad():
            joined, _ = theirs(edge_index_dict, src_offset_dict, dst_offset_dict, None, num_nodes)
        first = _Joined(next(_numbers), joined)
        for place, each in enumerate(edges):
            CACHE.store(each, (key, place), _Joined(first.number) if place else first)
    assert first.edges is not None

    def attributes(edge_attr_dict: Any) -> Tensor:
        values = []
        for each, of_type in zip(types, edges, strict=True):
            value = edge_attr_dict["__".join(each) if isinstance(edge_attr_dict, ParameterDict) else each]
            values.append(value if value.size(0) == of_type.size(1) else value.expand(of_type.size(1), -1))
        return torch.cat(values)

    return lend(first.edges), attributes
