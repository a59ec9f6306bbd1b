"""PyG's functions that sort, coalesce, mirror and select edges.

onehop sorts the edges by radix. torch gathers and reduces their attributes, as in PyG, so gradients and
errors are the same.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils._scatter import scatter

from onehop import thresholds
from onehop.graph import Graph
from onehop.graph.build import MOST_NODES
from onehop.graph.edge_columns import EdgeColumns, SortedEdges
from onehop.integrations import session
from onehop.integrations.pyg.functions import replacing_utils
from onehop.integrations.pyg.leave import are_dense, is_plain
from onehop.integrations.rows import Row
from onehop.ops.contexts import context_reason

_LINES = 2
_INTEGERS = (torch.int64, torch.int32)
# The default value of PyG's parameter ``edge_attr``.
_MISSING = "???"
# Numbers are sorted by counting if there are at most this many nodes per number; with more nodes, a pass over
# all counts takes longer than a sort.
_MOST_SPREAD = 2
# With more nodes than this, PyG joins tables in pandas.
_MOST_MAPPED = 10_000_000


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return replacing_utils(
        coalesce,
        sort_edge_index,
        to_undirected,
        is_undirected,
        contains_isolated_nodes,
        subgraph,
        k_hop_subgraph,
        index_sort,
    )


def coalesce(
    _: Any,
    edge_index: Any,
    edge_attr: Any = _MISSING,
    num_nodes: Any = None,
    reduce: Any = "sum",
    is_sorted: Any = False,
    sort_by_row: Any = True,
) -> Any:
    """Sorts edges and merges equal ones; None if PyG's code has to run."""
    if is_sorted is not False:
        return None
    edges = _sortable(edge_index, num_nodes, sort_by_row)
    return None if edges is None else _coalesced(edges, edge_attr, reduce)


def to_undirected(
    _: Any, edge_index: Any, edge_attr: Any = _MISSING, num_nodes: Any = None, reduce: Any = "add"
) -> Any:
    """Adds the reversed edges and coalesces all edges; None if PyG's code has to run."""
    if isinstance(edge_attr, int):
        edge_attr, num_nodes = _MISSING, edge_attr
    edges = _sortable(edge_index, num_nodes)
    return None if edges is None else _coalesced(edges, edge_attr, reduce, mirrored=True)


def sort_edge_index(
    _: Any, edge_index: Any, edge_attr: Any = _MISSING, num_nodes: Any = None, sort_by_row: Any = True
) -> Any:
    """Sorts edges; None if PyG's code has to run."""
    edges = _sortable(edge_index, num_nodes, sort_by_row)
    if edges is None:
        return None
    ordered = edges.sorted(numbered=_has_values(edge_attr))
    return _with_values(ordered.edge_index(once=False), _in_order(ordered, edge_attr))


def is_undirected(_: Any, edge_index: Any, edge_attr: Any = None, num_nodes: Any = None) -> bool | None:
    """Return whether every edge exists in both directions; None if PyG's code has to run.

    PyG's code also runs for edges with attributes; it sorts them by :func:`sort_edge_index`.
    """
    if isinstance(edge_attr, Tensor | list | tuple):
        return None
    edges = _sortable(edge_index, num_nodes)
    return None if edges is None else edges.are_paired()


def contains_isolated_nodes(_: Any, edge_index: Any, num_nodes: Any = None) -> bool | None:
    """Return whether a node has no edge to another node; None if PyG's code has to run."""
    edges = _edges(edge_index, num_nodes)
    if edges is None:
        return None
    num_nodes = edges.num_nodes if num_nodes is None else num_nodes
    if num_nodes > _LINES * len(edges):
        return True
    seen = torch.zeros(num_nodes, dtype=torch.bool, device="cpu")
    return not seen.all() if edges.mark_ends(seen) else None


def subgraph(
    _: Any,
    subset: Any,
    edge_index: Any,
    edge_attr: Any = None,
    relabel_nodes: Any = False,
    num_nodes: Any = None,
    *,
    return_edge_mask: Any = False,
) -> Any:
    """Return the edges among some nodes; None if PyG's code has to run."""
    if not _suits(edge_index, num_nodes):
        return None
    if isinstance(subset, list | tuple):
        subset = torch.tensor(subset, dtype=torch.long, device="cpu")
    is_mask = isinstance(subset, Tensor) and subset.dtype == torch.bool
    if not are_dense(subset, dtype=torch.bool if is_mask else torch.int64, dims=1):
        return None
    edges = EdgeColumns(edge_index)
    if is_mask:
        num_nodes = subset.numel()
    elif num_nodes is None:
        num_nodes = edges.num_nodes
    if (relabel_nodes and num_nodes > _MOST_MAPPED) or not (is_mask or _are_below(subset, num_nodes)):
        return None
    edge_mask = torch.empty(len(edges), dtype=torch.bool, device="cpu")
    if not edges.mark_inner(subset.contiguous() if is_mask else _marks(subset, num_nodes), edge_mask):
        return None
    mapping = None
    if relabel_nodes:
        mapping = _places(subset.nonzero().view(-1) if is_mask else subset, num_nodes, edge_index.dtype)
    chosen = edges.marked(edge_mask, mapping)
    if chosen is None:
        return None
    out = chosen, None if edge_attr is None else edge_attr[edge_mask]
    return (*out, edge_mask) if return_edge_mask else out


def k_hop_subgraph(
    _: Any,
    node_idx: Any,
    num_hops: Any,
    edge_index: Any,
    relabel_nodes: Any = False,
    num_nodes: Any = None,
    flow: Any = "source_to_target",
    directed: Any = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Return the nodes and edges around some nodes; None if PyG's code has to run."""
    if not _suits(edge_index, num_nodes) or edge_index.dtype != torch.int64:
        return None
    if type(num_hops) is not int or flow not in ("source_to_target", "target_to_source"):
        return None
    if type(node_idx) is int or (isinstance(node_idx, list | tuple) and len(node_idx) > 0):
        node_idx = torch.tensor([node_idx] if type(node_idx) is int else node_idx, device="cpu")
    if not are_dense(node_idx, dtype=torch.int64, dims=1):
        return None
    edges = EdgeColumns(edge_index, flipped=flow == "source_to_target")
    num_nodes = edges.num_nodes if num_nodes is None else num_nodes
    # If there are more nodes than ends of edges, PyG's list of reached nodes is faster than a mask over all
    # nodes.
    if num_nodes > _LINES * len(edges) or not _are_below(node_idx, num_nodes):
        return None
    frontier = _marks(node_idx, num_nodes)
    node_mask, edge_mask = frontier.clone(), torch.zeros(len(edges), dtype=torch.bool, device="cpu")
    for _hop in range(num_hops):
        reached = torch.zeros_like(frontier)
        if not edges.mark_reached(frontier, reached, edge_mask):
            return None
        frontier = reached
        node_mask |= reached
    if not (directed or edges.mark_inner(node_mask, edge_mask)):
        return None
    subset = node_mask.nonzero().view(-1)
    mapping = _places(subset, num_nodes, torch.int64) if relabel_nodes else None
    chosen = edges.marked(edge_mask, mapping)
    if chosen is None:
        return None
    return subset, chosen, torch.searchsorted(subset, node_idx.contiguous()), edge_mask


def index_sort(
    _: Any, inputs: Any, max_value: Any = None, stable: Any = False
) -> tuple[Tensor, Tensor] | None:
    """Sorts node numbers stably, by counting them; None if PyG's code has to run.

    PyG's code also runs if there are far fewer numbers than nodes, or a number is negative.
    """
    if not _serves(inputs, dims=1):
        return None
    least, most = (int(bound) for bound in inputs.aminmax())
    if not 0 <= least <= most < min(_MOST_SPREAD * inputs.numel(), MOST_NODES):
        return None
    graph = Graph.from_index(inputs, most + 1)
    nodes = torch.arange(most + 1, dtype=inputs.dtype, device="cpu")
    values = torch.repeat_interleave(nodes, graph.rowptr.diff(), output_size=inputs.numel())
    return torch.return_types.sort((values, graph.col.long()))


# Edges that are served


def _serves(numbers: Any, dims: int) -> bool:
    """Return whether the patch, the context, and the type and number of integers allow onehop's code."""
    # While a program is traced, sizes are tensors.
    if type(numbers) is not Tensor or context_reason() is not None or numbers.dim() != dims:
        return False
    if numbers.size(-1) < max(thresholds.now.sorted_edges, 1) or numbers.dtype not in _INTEGERS:
        return False
    return session.now.serves_functions and are_dense(numbers, dtype=numbers.dtype)


def _suits(edge_index: Any, num_nodes: Any) -> bool:
    """Return whether onehop's code runs for this ``edge_index``, in this context, under this patch."""
    is_number = num_nodes is None or type(num_nodes) is int
    return is_number and _serves(edge_index, _LINES) and edge_index.size(0) == _LINES


def _edges(edge_index: Any, num_nodes: Any, by_row: bool = True) -> EdgeColumns | None:
    """Return the edges of an ``edge_index``; None if PyG has to run, also for a number out of range."""
    if not _suits(edge_index, num_nodes):
        return None
    edges = EdgeColumns(edge_index, flipped=not by_row)
    return edges if edges.are_valid and (num_nodes is None or edges.num_nodes <= num_nodes) else None


def _sortable(edge_index: Any, num_nodes: Any, by_row: Any = True) -> EdgeColumns | None:
    """Return the edges as :func:`_edges`; None also if PyG's numbering of edges overflows their dtype."""
    edges = _edges(edge_index, num_nodes, by_row) if type(by_row) is bool else None
    if edges is None:
        return None
    num_nodes = edges.num_nodes if num_nodes is None else num_nodes
    return edges if num_nodes**2 <= torch.iinfo(edge_index.dtype).max else None


# Attributes of edges


def _gathered(values: Any, numbers: Tensor) -> Any:
    """Return ``values[numbers]``; by ``index_select``, in half the time, if autograd does not record it."""
    if (
        is_plain(values)
        and are_dense(values, dtype=values.dtype)
        and values.is_contiguous()
        and not values.requires_grad
        and values.dim() > 0
        and values.size(0) >= numbers.numel()
    ):
        return values.index_select(0, numbers)
    return values[numbers]


def _coalesced(edges: EdgeColumns, edge_attr: Any, reduce: Any, mirrored: bool = False) -> Any:
    if mirrored:
        edge_attr = _map_values(edge_attr, lambda value: torch.cat([value, value], dim=0))
    ordered = edges.sorted(mirrored=mirrored, numbered=_has_values(edge_attr))
    edge_index, edge_attr = ordered.edge_index(once=True), _in_order(ordered, edge_attr)
    if ordered.has_duplicates and _has_values(edge_attr):
        count = edge_index.size(1)
        edge_attr = _map_values(edge_attr, lambda value: scatter(value, ordered.groups, 0, count, reduce))
    return _with_values(edge_index, edge_attr)


def _in_order(ordered: SortedEdges, edge_attr: Any) -> Any:
    """Return the attributes in the order of the sorted edges."""
    return _map_values(edge_attr, lambda value: _gathered(value, ordered.numbers))


def _has_values(edge_attr: Any) -> bool:
    return isinstance(edge_attr, Tensor) or (isinstance(edge_attr, list | tuple) and len(edge_attr) > 0)


def _map_values(edge_attr: Any, function: Callable[[Any], Any]) -> Any:
    """Applies a function to a tensor, or to each value of a list; returns other values unchanged."""
    if isinstance(edge_attr, Tensor):
        return function(edge_attr)
    return [function(value) for value in edge_attr] if isinstance(edge_attr, list | tuple) else edge_attr


def _with_values(edge_index: Tensor, edge_attr: Any) -> Any:
    """Return the result as PyG's functions do: a pair, unless no attributes were passed."""
    has_place = edge_attr is None or isinstance(edge_attr, Tensor | list | tuple)
    return (edge_index, edge_attr) if has_place else edge_index


# Nodes


def _are_below(nodes: Tensor, num_nodes: int) -> bool:
    """Return whether node numbers, int64, are all in range."""
    return bool(((nodes >= 0) & (nodes < num_nodes)).all())


def _marks(nodes: Tensor, num_nodes: int) -> Tensor:
    """Return a boolean mask of these nodes, [num_nodes]."""
    mask = torch.zeros(num_nodes, dtype=torch.bool, device="cpu")
    mask[nodes] = True
    return mask


def _places(nodes: Tensor, num_nodes: int, dtype: torch.dtype) -> Tensor:
    """Return the place of each node in ``nodes``, [num_nodes]; entries of other nodes are undefined."""
    places = torch.empty(num_nodes, dtype=dtype, device="cpu")
    places[nodes] = torch.arange(nodes.numel(), dtype=dtype, device="cpu")
    return places
