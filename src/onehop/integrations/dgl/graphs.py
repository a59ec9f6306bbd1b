"""The onehop graph of a DGL graph, made once and cached.

The edges of a DGLGraph are in its index, ``g._graph``, which never changes: any change gives the DGLGraph a
new index, and ``local_var`` shares the old one. So an index needs no version. Graphs made from it are in the
cache of recognised tensors, under a tensor that represents the index and is freed with it.

``update_all`` works on a relation of the graph, even if there is only one, and makes a new index for it in
every call. Under the patch, an index remembers the indices of its relations, which never change either.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import dgl
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph, dgl_edges
from onehop.graph.contents import Noted
from onehop.graph.identity import CACHE
from onehop.integrations.rows import Leave

_REST = "dgl"


class _Record:
    """The tensor that represents an index, and the indices of its relations."""

    __slots__ = ("relations", "tensor")

    def __init__(self) -> None:
        with torch.inference_mode(False):
            self.tensor = torch.empty(0, device="cpu")
        self.relations: dict[int, Any] = {}


# The keys are ids, because DGL's objects cannot be hashed. The weak reference detects a new index at an old
# address.
_records: dict[int, tuple["weakref.ref[Any]", _Record]] = {}


class Structure:
    """The edges of an index with one type of edges.

    Attributes:
        graph: The edges, in the order of their numbers.
        device: The device of the index, where its features must be.
    """

    def __init__(self, graph: Graph, device: torch.device) -> None:
        self.graph, self.device = graph, device
        self._visits_by_number: bool | None = None

    @functools.cached_property
    def empty(self) -> Tensor:
        """A boolean mask of the destinations without edges, [num_dst]."""
        with ordinary_tensors():
            return self.graph.on(self.device).rowptr.diff() == 0

    @functools.cached_property
    def has_empty(self) -> bool:
        """Return whether a destination has no edges; on a GPU, the host waits for the answer once."""
        return bool(self.empty.any())

    def visits_by_number(self, index: Any) -> bool:
        """Return whether DGL visits the edges of each destination in the order of their numbers.

        If several edges tie in a maximum, this order decides which one gets the gradient. If the index has
        CSC, the host waits for the answer once.

        Args:
            index: The index of this structure.
        """
        if self._visits_by_number is None:
            self._visits_by_number = _visits_by_number(index)
        return self._visits_by_number

    @property
    def nbytes(self) -> int:
        """The bytes held now."""
        return sum(self.nbytes_by_device.values())

    @property
    def nbytes_by_device(self) -> dict[torch.device, int]:
        """The bytes held now on each device."""
        sizes = self.graph.nbytes_by_device
        mask_bytes = self.empty.nbytes if "empty" in vars(self) else 0
        return {**sizes, self.device: sizes.get(self.device, 0) + mask_bytes}


@contextlib.contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Makes ordinary tensors inside the block; tensors of inference mode could not be used outside of it."""
    with torch.inference_mode(False), torch.no_grad():
        yield


def device_of(index: Any) -> torch.device:
    """Return the device of ``g._graph``."""
    device: torch.device = dgl.backend.to_backend_ctx(index.ctx)
    return device


def structure_of(index: Any, device: torch.device) -> Structure:
    """Return the structure of ``g._graph``, which has one type of edges; it is made on the index's device.

    Raises:
        Leave: There are too many nodes.
    """
    key = _record(index).tensor
    structure: Structure | None = CACHE.find(key, _REST)
    if structure is not None:
        return structure
    noted = Noted(key)
    kind_src, kind_dst = index.metagraph.find_edge(0)
    size = (index.num_nodes(kind_src), index.num_nodes(kind_dst))
    with ordinary_tensors():
        edge_index = dgl_edges.by_number(index.edges(0), index.formats()["created"])
        try:
            graph = Graph.from_edge_index(edge_index, size=size)
        except ArgumentError:
            raise Leave("its graph has too many nodes") from None
    structure = Structure(graph, device)
    CACHE.store(noted, _REST, structure)
    return structure


def _visits_by_number(index: Any) -> bool:
    created = index.formats()["created"]
    if "csc" in created:
        bounds, _, number = index.adjacency_matrix_tensors(0, True, "csr")[2:]
        target = torch.arange(len(bounds) - 1, device=bounds.device).repeat_interleave(bounds.diff())
    elif "coo" in created:
        # DGL will make CSC from COO, in the order of the edges' numbers.
        return True
    else:
        # DGL will make CSC from CSR, in the order of CSR.
        _, target, number = index.edges(0)
        target, order = target.sort(stable=True)
        number = number[order]
    # DGL omits the numbers if they are consecutive.
    return len(number) == 0 or bool(((number.diff() > 0) | (target.diff() > 0)).all())


def get_relation_graph(theirs: Callable[..., Any], index: Any, etype: int) -> Any:
    """Runs ``HeteroGraphIndex.get_relation_graph`` and remembers its results."""
    relations = _record(index).relations
    if etype not in relations:
        relations[etype] = theirs(index, etype)
    return relations[etype]


def _record(index: Any) -> _Record:
    key = id(index)
    entry = _records.get(key)
    if entry is not None and entry[0]() is index:
        return entry[1]

    def forget(dead: "weakref.ref[Any]") -> None:
        current = _records.get(key)
        if current is not None and current[0] is dead:
            del _records[key]

    record = _Record()
    _records[key] = (weakref.ref(index, forget), record)
    return record
