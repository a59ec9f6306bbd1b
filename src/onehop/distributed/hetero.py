"""A heterogeneous graph over several processes: one divided graph per relation between node types."""

from collections.abc import Mapping

import torch.distributed as dist
from torch import Tensor

from onehop.distributed.exchange import Exchange, HaloMode, Halos, Traffic
from onehop.distributed.graph import DistributedGraph, LocalEdges
from onehop.distributed.list_parts import divided_relations
from onehop.distributed.partition import Method, Relation


class DistributedHeteroGraph:
    """The part of a heterogeneous graph on this process.

    Every node type is divided once, so its rows are the same in all relations. Layers of PyG such as
    ``HeteroConv`` take :attr:`edge_index_dict`, and the rows of :attr:`owned_nodes` for each type.

    Make one with :meth:`from_edge_index_dict`.

    Attributes:
        relations: The divided graph of each relation; bipartite if the relation's node types differ.
        owned_nodes: By node type, [n], int64: the graph's numbers of the rows that this process owns.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import DistributedHeteroGraph
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> edges = {("user", "rates", "film"): torch.tensor([[0, 1, 2], [0, 0, 1]])}
        >>> graph = DistributedHeteroGraph.from_edge_index_dict(edges, {"user": 3, "film": 2})
        >>> {kind: nodes.tolist() for kind, nodes in graph.owned_nodes.items()}
        {'user': [0, 1, 2], 'film': [0, 1]}
        >>> dist.destroy_process_group()
    """

    def __init__(
        self, relations: Mapping[Relation, DistributedGraph], owned_nodes: Mapping[str, Tensor]
    ) -> None:
        self.relations = dict(relations)
        self.owned_nodes = dict(owned_nodes)
        # These references keep a graph's edges one and the same tensor, because the graph holds it weakly.
        self._edges = {relation: graph.edge_index for relation, graph in self.relations.items()}

    @classmethod
    def from_edge_index_dict(
        cls,
        edge_index_dict: Mapping[Relation, Tensor],
        num_nodes_dict: Mapping[str, int],
        *,
        method: Method = "auto",
        seed: int = 0,
        owner: Mapping[str, Tensor] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> "DistributedHeteroGraph":
        """Make the part of this process if every process has the lists of edges of all relations.

        Args:
            edge_index_dict: By relation, the list of edges, [2, E], int32 or int64, on the CPU; the same on
                every rank, in the same order.
            num_nodes_dict: By node type, the number of nodes.
            method: See :func:`onehop.distributed.partition_types`. Rank 0 runs it.
            seed: Seed of the partitioning.
            owner: By node type, [N], integers: the rank that owns each node, instead of ``method``.
            group: The processes; None means all.

        Raises:
            ArgumentError: The graphs of the ranks differ, or an argument does not fit.
            CommunicationError: Another process ended or did not answer.
            ConfigurationError: There is no process group, or METIS was requested and is not installed.
            IndexRangeError: A node number is negative or too large.
        """
        parts, nodes = divided_relations(edge_index_dict, num_nodes_dict, method, seed, owner, group)
        relations = {each: DistributedGraph(part, Exchange(part, group)) for each, part in parts.items()}
        return cls(relations, {kind: owned.long() for kind, owned in nodes.items()})

    @property
    def edge_index_dict(self) -> dict[Relation, LocalEdges]:
        """Return the ``edge_index`` of each relation, for layers of PyG under ``onehop.patch()``."""
        return dict(self._edges)

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The processes over which the graph is divided; None means all."""
        return next((graph.group for graph in self.relations.values()), None)

    def halos(self, mode: HaloMode) -> Halos:
        """Return a context manager for the halos of all relations; see :meth:`DistributedGraph.halos`."""
        return Halos([graph.exchange for graph in self.relations.values()], mode)

    @property
    def owned_edges(self) -> dict[Relation, Tensor]:
        """Return, by relation, [e], int64: the relation's numbers of the edges that end here; new tensors."""
        return {relation: graph.owned_edges for relation, graph in self.relations.items()}

    @property
    def traffic(self) -> Traffic:
        """Data that this process has sent and received in all relations since :meth:`reset_traffic`."""
        return sum((graph.traffic for graph in self.relations.values()), Traffic())

    def reset_traffic(self) -> None:
        """Reset the counters to zero."""
        for graph in self.relations.values():
            graph.reset_traffic()

    def __repr__(self) -> str:
        parts = ", ".join(f"{'.'.join(relation)}: {graph}" for relation, graph in self.relations.items())
        return f"DistributedHeteroGraph({parts})"
