"""The graph behind a DGL graph, made once and found again.

A DGLGraph is a thin cover: what holds the edges is its index, ``g._graph``, which never changes. Whatever
changes a graph gives it a new index, and ``local_var`` shares the old one. So an index needs no version, and
what was made from it lives in the cache of recognised tensors, under a tensor that stands for the index and
dies with it.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import CACHE

_REST = "dgl"

# By id, with a weak reference to tell a new index at an old address: DGL's objects cannot be hashed.
_stand_ins: dict[int, tuple["weakref.ref[Any]", Tensor]] = {}


@dataclass(frozen=True, slots=True)
class Structure:
    """What is known of an index with one type of edges.

    Attributes:
        graph: Its edges; their order is that of the edge numbers.
        empty: [num_dst], which destinations have no edges; None if all have some.
    """

    graph: Graph
    empty: Tensor | None

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self.graph.nbytes + (0 if self.empty is None else self.empty.nbytes)


def structure_of(index: Any) -> Structure | None:
    """The structure of ``g._graph``, on the CPU, with one type of edges.

    Returns:
        None if there are too many nodes.
    """
    stand_in = _stand_in(index)
    found: Structure | None = CACHE.find(stand_in, _REST)
    if found is not None:
        return found
    kind_src, kind_dst = index.metagraph.find_edge(0)
    source, target, _ = index.edges(0, "eid")
    size = (index.num_nodes(kind_src), index.num_nodes(kind_dst))
    # Tensors made in inference mode could not be used outside it, where they will be found again.
    with torch.inference_mode(False), torch.no_grad():
        try:
            graph = Graph.from_edge_index(torch.stack([source, target]), size=size)
        except ArgumentError:
            return None
        empty = graph.in_degrees == 0
        structure = Structure(graph, empty if bool(empty.any()) else None)
    CACHE.store(stand_in, _REST, structure)
    return structure


def _stand_in(index: Any) -> Tensor:
    """An empty tensor that lives as long as the index."""
    key = id(index)
    found = _stand_ins.get(key)
    if found is not None and found[0]() is index:
        return found[1]

    def forget(dead: "weakref.ref[Any]") -> None:
        entry = _stand_ins.get(key)
        if entry is not None and entry[0] is dead:
            del _stand_ins[key]

    with torch.inference_mode(False):
        made = torch.empty(0)
    _stand_ins[key] = (weakref.ref(index, forget), made)
    return made
