"""One graph over several processes: each process has its own rows, and the edges that end there."""

import os
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed import files
from onehop.distributed.agreement import gathered, introduce, place, same, together
from onehop.distributed.edges import PartEdges
from onehop.distributed.exchange import Exchange, HaloMode, Halos, Traffic
from onehop.distributed.list_parts import part_of_nodes, part_of_two_sides
from onehop.distributed.loops import looped_numbers, with_loops, without_loops
from onehop.distributed.part import ARRAYS, Part
from onehop.distributed.partition import Method
from onehop.distributed.splits import Splits
from onehop.errors import ArgumentError


class DistributedGraph:
    """The part of a graph on this process, and the exchange with the other processes.

    Every process calls the same functions in the same order. Features and results have a row for each of
    ``owned_nodes``; values of edges have an entry for each of ``owned_edges``.

    Make one with :meth:`from_edge_index` or :meth:`open`.

    Attributes:
        part: This process's part.
        exchange: Sends this process's rows to the processes that need them.
        loops: Whether every owned row also has a self loop, as its last edge, in addition to the edges of the
            part.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import DistributedGraph
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = DistributedGraph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))
        >>> graph
        DistributedGraph(rank 0 of 1: 3 of 3 nodes, 3 of 3 edges, 0 rows from others)
        >>> graph.owned_nodes.tolist(), graph.num_halo  # one process owns all nodes, and needs none of others
        ([0, 1, 2], 0)
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        part: Part,
        exchange: Exchange,
        folder: files.Folder | None = None,
        splits: Splits | None = None,
        loops: bool = False,
    ) -> None:
        self.part = part
        self.exchange = exchange
        self._folder = folder
        # A weak reference, because the edges hold the graph, and a graph counts as in use while it is
        # referenced (held_graphs).
        self._edge_index: weakref.ref[LocalEdges] | None = None
        self.loops = loops
        self._splits = Splits(part) if splits is None else splits
        self._derived: dict[Hashable, Any] = {}
        if part.parts > 1:
            held_graphs.add(self)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int | None = None,
        *,
        size: tuple[int, int] | None = None,
        method: Method = "auto",
        seed: int = 0,
        owner: Tensor | tuple[Tensor, Tensor] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> "DistributedGraph":
        """Make the part of this process if every process has the whole list of edges.

        If the graph is bipartite, each process owns some destinations, with the edges that end there, and
        some sources.

        Args:
            edge_index: [2, E], int32 or int64, on the CPU, with sources in row 0 and destinations in row 1;
                the same on every rank.
            num_nodes: Number of nodes; None means one more than the largest number in ``edge_index``.
            size: Numbers of sources and of destinations, for a bipartite graph; None means that they are the
                same nodes.
            method: The method of partitioning: see :func:`onehop.distributed.partition` or, for a bipartite
                graph, :func:`onehop.distributed.partition_types`. Rank 0 runs it.
            seed: Seed of the partitioning.
            owner: [N], integers: the rank that owns each node, instead of ``method``; the same on every rank.
                For a bipartite graph, a pair of such tensors, for sources and destinations.
            group: The processes; None means all.

        Raises:
            ArgumentError: The graphs of the ranks differ, or an argument does not fit.
            CommunicationError: Another process ended or did not answer.
            ConfigurationError: There is no process group, or METIS was requested and is not installed.
            IndexRangeError: A node number is negative or too large.
        """
        if size is None:
            part = part_of_nodes(edge_index, num_nodes, method, seed, owner, group)
        else:
            part = part_of_two_sides(edge_index, num_nodes, size, method, seed, owner, group)
        return cls(part, Exchange(part, group))

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], *, group: dist.ProcessGroup | None = None
    ) -> "DistributedGraph":
        """Open the part of this process from a folder that :func:`onehop.distributed.save` wrote.

        Each process reads only its own part.

        Raises:
            ArgumentError: The folder was written for another number of processes, or the ranks' folders
                differ.
            CommunicationError: Another process ended or did not answer.
            ConfigurationError: There is no process group.
            FileFormatError: The folder does not hold a partitioned graph, or a file in it is damaged.
            FileNotFoundError: There is no such folder, or no such part in it.
        """
        rank, parts = place(group)
        doing = "DistributedGraph.open"
        introduce(doing, group)
        stored = together(doing, lambda: files.Folder.open(folder, rank, parts), group)
        part = together(doing, stored.part, group)
        same(
            "the partition",
            gathered(doing, part.identity, group),
            "Give every rank a copy of the same folder; save() writes it once, for all.",
        )
        return cls(part, Exchange(part, group), stored)

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The processes over which the graph is divided; None means all."""
        return self.exchange.group

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self.part.rank

    @property
    def owned_nodes(self) -> Tensor:
        """Return [n], int64: the graph's numbers of the rows that this process owns. A new tensor."""
        return self.part.owned_nodes.long()

    @property
    def owned_edges(self) -> Tensor:
        """Return [e], int64: the graph's numbers of the edges that end in the owned rows, row by row.

        The result is a new tensor.
        """
        return looped_numbers(self.part) if self.loops else self.part.edge_numbers.long()

    @property
    def device(self) -> torch.device:
        """Device of the part and of its rows."""
        return self.part.source.device

    @property
    def num_nodes(self) -> int:
        """Number of rows that this process owns."""
        return len(self.part.owned_nodes)

    @property
    def num_edges(self) -> int:
        """Number of edges that end in owned rows."""
        return len(self.part.source) + self.loops * self.num_nodes

    @property
    def is_bipartite(self) -> bool:
        """Return whether edges start at other nodes than the nodes in which they end."""
        return self.part.sources is not None

    @property
    def owned_sources(self) -> Tensor:
        """Return [m], int64: the graph's numbers of the sources that this process owns. A new tensor.

        The result equals ``owned_nodes`` unless the graph is bipartite.
        """
        sources = self.part.sources
        return self.owned_nodes if sources is None else sources.owned_nodes.long()

    @property
    def num_sources(self) -> int:
        """Number of source rows that this process owns."""
        return self.part.num_sources

    @property
    def num_halo(self) -> int:
        """Number of halo rows: rows of other processes that this process's edges need."""
        return len(self.part.halo_nodes)

    @property
    def traffic(self) -> Traffic:
        """Data that this process has sent and received since :meth:`reset_traffic`."""
        return self.exchange.traffic

    def reset_traffic(self) -> None:
        """Reset the counters to zero."""
        self.exchange.traffic = Traffic()

    def halos(self, mode: HaloMode) -> Halos:
        """Return a context manager that decides how rows of other processes arrive; it can be reused.

        "exact" is the default. "bfloat16" rounds rows and their gradients before they are sent, so results
        differ from the results of one process. All ranks must choose the same mode. A backward pass that runs
        layers again, as checkpoints do, needs "exact".

        Args:
            mode: "exact" or "bfloat16".

        Raises:
            ArgumentError: The mode is unknown.
        """
        return Halos([self.exchange], mode)

    @property
    def edge_index(self) -> "LocalEdges":
        """Return [2, e], int64: the ``edge_index`` for layers of PyG, under ``onehop.patch()``.

        Row 1 has owned rows. Row 0 has owned rows and, from ``num_nodes`` on, rows of other processes.
        """
        edges = None if self._edge_index is None else self._edge_index()
        if edges is None:
            edges = LocalEdges.of(self)
            self._edge_index = weakref.ref(edges)
        return edges

    def ends(self) -> Tensor:
        """Return [2, e], int64: the numbers that :attr:`edge_index` represents. A new tensor."""
        part = with_loops(self.part) if self.loops else self.part
        return torch.stack([part.source, part.target]).long()

    def edge_rows(self, values: Tensor) -> Tensor:
        """Return [e, ...]: this process's rows of a tensor of all edges, for layers and operators.

        Differentiable: the gradient is 0 in the rows of edges that end elsewhere, so the sum of all
        processes' gradients equals the gradient in one process. A process that only has its own edges'
        features needs no tensor of all edges: their rows are in the order of ``owned_edges``.

        Args:
            values: [E, ...]: a row for each edge, in the order of the ``edge_index`` that was divided.

        Raises:
            ArgumentError: The tensor has another number of rows, or the graph has implied self loops.
        """
        edges = self.part.num_edges
        if self.loops:
            raise ArgumentError(
                "edge_rows: the graph was given self loops, which no tensor of edges has rows for."
            )
        if not isinstance(values, Tensor) or values.dim() == 0 or values.size(0) != edges:
            got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ArgumentError(
                f"values: expected a row for each of the {edges} edges of the whole graph, got {got}: rows "
                "of another graph, or of this process, which need no dividing."
            )
        return values.index_select(0, self.owned_edges.to(values.device))

    def to(self, device: torch.device | str) -> "DistributedGraph":
        """Return this graph with its part on a device; returns itself if the part is there already.

        Rows must be on this device too. Messages use the group's backend for the device:
        ``init_process_group("cpu:gloo,cuda:nccl")``.
        """
        part = self.part.to(torch.device(device))
        return (
            self
            if part is self.part
            else DistributedGraph(part, Exchange(part, self.exchange.group), self._folder, loops=self.loops)
        )

    def load(self, name: str) -> Tensor:
        """Return [n, ...]: this process's rows of a tensor that :func:`onehop.distributed.save` stored.

        Raises:
            ArgumentError: The graph was not opened from a folder.
            FileFormatError: The file is damaged, or has another number of rows.
            FileNotFoundError: There is no such tensor.
        """
        if self._folder is None:
            raise ArgumentError(
                "load: this graph was not opened from a folder; index your tensor with owned_nodes instead."
            )
        return self._folder.tensor(name, self.num_nodes)

    def load_edges(self, name: str) -> Tensor:
        """Return [e, ...]: the rows of this process's edges of an edge tensor that :func:`save` stored.

        Raises:
            ArgumentError: The graph was not opened from a folder, or its edges differ from the stored ones.
            FileFormatError: The file is damaged, or has another number of rows.
            FileNotFoundError: There is no such tensor.
        """
        if self._folder is None or self.loops:
            raise ArgumentError(
                "load_edges: this graph is not one that was opened from a folder; take edge_rows of your "
                "tensor instead."
            )
        return self._folder.edge_tensor(name, self.num_edges)

    @property
    def splits(self) -> Splits:
        """The part's edges, without implied loops, split into two graphs."""
        return self._splits

    @property
    def in_degrees(self) -> Tensor:
        """Return [n], int64: the number of edges that end in each owned row."""
        return self.part.rowptr.diff() + int(self.loops)

    def without_self_loops(self) -> "DistributedGraph":
        """Return the graph without edges from a node to itself."""
        self._check_square("without_self_loops")
        part = without_loops(self.part)
        return DistributedGraph(part, self.exchange, self._folder, self._splits_of(part))

    def with_self_loops(self) -> "DistributedGraph":
        """Return the graph with one more self loop per node; loops are numbered after all edges, by node."""
        self._check_square("with_self_loops")
        part = with_loops(self.part) if self.loops else self.part
        return DistributedGraph(part, self.exchange, self._folder, self._splits_of(part), loops=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors that this graph and the graphs derived from it hold.

        Features and messages in transit are not counted.
        """
        sizes: dict[int, int] = {}
        self._measure(sizes)
        return sum(sizes.values())

    def derived(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, cached under ``key``."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    def __repr__(self) -> str:
        return (
            f"DistributedGraph(rank {self.part.rank} of {self.part.parts}: {self.num_nodes} of "
            f"{self.part.num_nodes} nodes, {self.num_edges} of {self.part.num_edges} edges, {self.num_halo} "
            f"rows from others)"
        )

    def _measure(self, sizes: dict[int, int]) -> None:
        """Record the bytes of every storage and of the splits, each once."""
        sizes[id(self._splits)] = self._splits.nbytes
        arrays = [getattr(self.part, name) for name in ARRAYS]
        for value in (*arrays, *self._derived.values()):
            if isinstance(value, DistributedGraph):
                value._measure(sizes)
            elif isinstance(value, Tensor):
                storage = value.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()

    def _check_square(self, name: str) -> None:
        if self.is_bipartite:
            raise ArgumentError(f"{name}: sources and destinations of this graph are different nodes.")

    def _splits_of(self, part: Part) -> Splits | None:
        return self._splits if part is self.part else None


# The graphs over more than one process that are still referenced; see onehop.distributed.converted.
held_graphs: weakref.WeakSet[DistributedGraph] = weakref.WeakSet()


class LocalEdges(PartEdges):
    """The edges of one part of a graph; the patch recognises them by this class. See :class:`PartEdges`."""

    graph: DistributedGraph

    @staticmethod
    def of(graph: DistributedGraph) -> "LocalEdges":
        """Return the edges of a graph's part: a tensor of their shape that takes the memory of one number."""
        shape = torch.zeros(1, 1, dtype=torch.int64, device=graph.device).expand(2, graph.num_edges)
        edges: LocalEdges = torch.Tensor._make_subclass(LocalEdges, shape)
        edges.graph = graph
        return edges
