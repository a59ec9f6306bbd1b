"""Edges of one process's part of a graph, given as an ``edge_index`` of class LocalEdges.

Layers normalise an ``edge_index`` and add self loops before they propagate. For a part, this module does
both, with degrees from all processes.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map
from torch_geometric.utils.loop import compute_loop_attr

from onehop import distributed
from onehop.distributed.checks import edges_reason
from onehop.distributed.edges import LOOKS
from onehop.distributed.graph import DistributedGraph, LocalEdges
from onehop.distributed.loops import looped_rowptr, merged
from onehop.errors import ArgumentError
from onehop.integrations.pyg.edges import SOURCE, Edges, Factors
from onehop.integrations.pyg.leave import Leave, leave_if


class PartWeights(torch.Tensor):
    """GCN's weights of a part's edges, as a tensor of shape [e] without memory.

    Each weight is the product of two scales. Sums use the scales. Every other computation uses the weights
    themselves, which all processes then compute together, once.
    """

    graph: DistributedGraph
    scale: Tensor
    """The scale of the owned rows, [n]: 1 / sqrt(degree); 0 for rows without edges."""

    @staticmethod
    def of(graph: DistributedGraph, dtype: torch.dtype) -> "PartWeights":
        """Return the weights of a graph whose edges weigh 1 before the normalisation."""
        shape = torch.zeros(1, dtype=dtype, device=graph.device).expand(graph.num_edges)
        weights: PartWeights = torch.Tensor._make_subclass(PartWeights, shape)
        weights.graph = graph
        weights.scale = graph.derived(("gcn_scale", dtype), lambda: _scale(graph.in_degrees.to(dtype)))
        return weights

    def materialised(self) -> Tensor:
        """Return the weights as a plain tensor."""
        return made_weights(self.graph, self.scale.dtype)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs functions that read only the shape directly, and other functions on the computed weights."""
        with torch._C.DisableTorchFunctionSubclass():
            if func not in LOOKS:
                args, kwargs = tree_map(_plain, (args, kwargs))
            return func(*args, **(kwargs or {}))


def _plain(operand: Any) -> Any:
    return operand.materialised() if isinstance(operand, PartWeights) else operand


class PartEdges(Edges):
    """The edges that end in one process's owned nodes; rules use the operators over all processes.

    Args:
        edge_index: The edges.
        size: The caller's numbers of rows, or None.

    Raises:
        Leave: The size does not fit.
    """

    __slots__ = ("_graph",)
    is_part = True
    operators = distributed
    unmade = PartWeights

    def __init__(self, edge_index: LocalEdges, size: Any) -> None:
        graph = self._graph = edge_index.graph
        self.edge_index, self.count, self.is_cpu = edge_index, graph.num_edges, graph.device.type == "cpu"
        self.forwards, self.sending = True, SOURCE
        owned = (graph.num_sources, graph.num_nodes)
        if size is not None and any(n not in (None, rows) for n, rows in zip(size, owned, strict=True)):
            raise Leave(f"a size other than {owned[0]} owned sources and {owned[1]} owned nodes")
        self.sizes = list(owned)

    def check(self, operands: dict[str, Any]) -> None:
        """Raises :class:`Leave` if features or weights do not belong to the part's edges.

        Args:
            operands: The operands of ``propagate`` and ``edge_updater`` by name.
        """
        for name in ("edge_weight", "edge_attr", "norm"):
            value = operands.get(name)
            if isinstance(value, Tensor) and type(value) is not PartWeights:
                leave_if(edges_reason(name, value, self._graph))

    @property
    def device(self) -> torch.device:
        """The device of the part."""
        return self._graph.device

    def note(self, end: int, rows: int) -> None:
        """Raises :class:`Leave` if features do not have a row for each owned node."""
        expected = self.sizes[end]
        if rows != expected:
            what = "sources" if end == SOURCE and self._graph.is_bipartite else "nodes"
            raise Leave(f"its features are not a row for each of {expected} owned {what}")

    def graph(self) -> Any:
        """Return the part of the graph."""
        return self._graph

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """Return the part, and the weight or the scales from GCN's normalisation."""
        graph: Any = self.graph()
        if not isinstance(weight, PartWeights):
            return Factors(graph, weight)
        if reduce == "sum" and weight.graph is graph and x.dtype is weight.dtype:
            return Factors(graph, None, weight.scale)
        return Factors(graph, weight.materialised())

    def drawn(self, out: Tensor, p: float) -> Tensor:
        """Return the factors of dropout; each process of a converted model draws from its own stream."""
        return functional.dropout(torch.ones_like(out), p)


def rewritten_loops(
    name: str, edge_index: LocalEdges, edge_attr: Tensor | None, fill_value: Any = None
) -> tuple[LocalEdges, Tensor | None]:
    """Runs PyG's ``add_self_loops`` or ``remove_self_loops`` on a part and its edges' features.

    Args:
        name: "add_self_loops" or "remove_self_loops".
        edge_index: The part's edges.
        edge_attr: [e, ...], the edges' features; None means no features.
        fill_value: The features of a loop: a number, a tensor, or the name of a reduction of the node's other
            incoming edges' features, such as "mean"; None means 1.

    Raises:
        ArgumentError: The features do not belong to the part's edges, or sources and destinations are
            different nodes.
    """
    graph = edge_index.graph
    if edge_attr is not None:
        reason = edges_reason("edge_attr", edge_attr, graph)
        if reason is not None:
            raise ArgumentError(f"{reason}. Take the rows with graph.edge_rows.")
    make = graph.with_self_loops if name == "add_self_loops" else graph.without_self_loops
    derived: DistributedGraph = graph.derived(name, make)
    if edge_attr is None:
        return derived.edge_index, None
    ends = graph.ends()
    if name == "remove_self_loops":
        return derived.edge_index, edge_attr.index_select(0, (ends[0] != ends[1]).nonzero().squeeze(1))
    # A part contains all edges that end in its nodes, so PyG's own function gives the same result as on one
    # process.
    rowptr = looped_rowptr(graph.part.rowptr) if graph.loops else graph.part.rowptr
    of_loops = compute_loop_attr(ends, edge_attr, graph.num_nodes, False, fill_value)
    return derived.edge_index, merged(rowptr, edge_attr, of_loops)


def normalised(
    edge_index: LocalEdges,
    edge_weight: Tensor | None,
    improved: bool,
    add_self_loops: bool,
    flow: str,
    dtype: torch.dtype | None,
) -> tuple[LocalEdges, Tensor]:
    """Apply GCN's normalisation to a part, as ``torch_geometric.nn.conv.gcn_conv.gcn_norm`` does.

    Raises:
        ArgumentError: ``flow`` is not "source_to_target", or the weight is not one number per edge.
    """
    graph = edge_index.graph
    if flow != "source_to_target":
        raise ArgumentError("flow: 'target_to_source' has no path over several processes; flip the edges.")
    if graph.is_bipartite:
        raise ArgumentError(
            "edge_index: GCN's normalisation is of graphs whose sources are their destinations."
        )
    if edge_weight is not None:
        if edge_weight.shape != (graph.num_edges,):
            raise ArgumentError(
                f"edge_weight: expected an entry for each of the {graph.num_edges} edges that end in nodes "
                f"of rank {graph.rank} (weight[graph.owned_edges]), got shape {list(edge_weight.shape)}."
            )
        if add_self_loops:
            edge_weight = _with_loops(graph, edge_weight, 2.0 if improved else 1.0)
        looped = _looped(graph, add_self_loops)
        return looped.edge_index, normalised_weights(looped, edge_weight)
    looped = _looped(graph, add_self_loops)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype in (torch.float32, torch.float64):
        return looped.edge_index, PartWeights.of(looped, dtype)
    # In 16 bits, the weights equal PyG's only if they are computed in the same steps as in PyG.
    return looped.edge_index, made_weights(looped, dtype)


def made_weights(graph: DistributedGraph, dtype: torch.dtype) -> Tensor:
    """Return the normalised weights, [e], of edges that weigh 1 before; they are cached with the graph."""

    def make() -> Tensor:
        with torch.inference_mode(False), torch.no_grad():
            return normalised_weights(graph, torch.ones(graph.num_edges, dtype=dtype, device=graph.device))

    weights: Tensor = graph.derived(("gcn_norm", dtype), make)
    return weights


def normalised_weights(graph: DistributedGraph, weight: Tensor) -> Tensor:
    """Return weight / sqrt(degree of the source * degree of the destination), [e]; differentiable.

    The formula is from ``torch_geometric.nn.conv.gcn_conv.gcn_norm``.
    """
    source, target = graph.ends()
    scale = _scale(weight.new_zeros(graph.num_nodes).index_add(0, target, weight))
    everywhere = torch.cat([scale, graph.exchange.values(scale.unsqueeze(1)).squeeze(1)])
    return everywhere[source] * weight * scale[target]


def _scale(degree: Tensor) -> Tensor:
    scale = degree.pow(-0.5)
    return scale.masked_fill(scale == float("inf"), 0)


def _looped(graph: DistributedGraph, add_self_loops: bool) -> DistributedGraph:
    """Return the graph, with one self loop at every node if ``add_self_loops``."""
    if not add_self_loops:
        return graph
    plain: DistributedGraph = graph.derived("remove_self_loops", graph.without_self_loops)
    looped: DistributedGraph = plain.derived("add_self_loops", plain.with_self_loops)
    return looped


def _with_loops(graph: DistributedGraph, weight: Tensor, fill: float) -> Tensor:
    """Return the weights with a loop at every node; its weight is its last loop's, or ``fill``."""
    source, target = graph.ends()
    loop = source == target
    of_loops = weight.new_full((graph.num_nodes,), fill)
    of_loops[target[loop]] = weight[loop]
    return merged(_looped(graph, True).part.rowptr, weight[~loop], of_loops)
