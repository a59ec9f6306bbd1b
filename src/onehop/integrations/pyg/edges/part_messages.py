"""Layers on one process's part that run their own messages, over owned and received rows.

Every edge that ends in an owned row is in the part, with its features. So once the sources' rows are here,
the messages, and whatever reduces them, are those of the whole graph: the layer propagates over a plain
bipartite graph, from owned and halo rows to owned rows. The rows are received first; nothing is computed
meanwhile.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.distributed.checks import edges_reason
from onehop.distributed.converted import among_edges
from onehop.distributed.graph import DistributedGraph
from onehop.integrations.pyg.edges.part_weights import PartWeights
from onehop.integrations.pyg.leave import is_plain, leave_if, need
from onehop.ops.contexts import WRAPPED, wraps

# What PyG adds to a message's arguments that has numbers of sources, or of all nodes.
_OF_THE_WHOLE = ("edge_index", "edge_index_j", "adj_t", "size", "size_j")
_PAIR = 2

Ends = tuple[Tensor | None, Tensor | None]


def propagate_messages(
    layer: Any, propagate: Callable[..., Any], graph: DistributedGraph, operands: dict[str, Any]
) -> Any:
    """Return what the layer's ``propagate`` gives for the owned rows.

    Nothing is sent before all operands have been looked at.

    Args:
        layer: The layer, which sends from sources to destinations.
        propagate: Its ``propagate``, for a plain graph.
        graph: The part.
        operands: What ``propagate`` gets, by name, without ``size``.

    Raises:
        Leave: It cannot run.
    """
    of_message = set(layer.inspector.get_param_names("message"))
    names = of_message.union(*map(layer.inspector.get_param_names, ("aggregate", "update")))
    for name in _OF_THE_WHOLE:
        need(
            name not in names, f"its message asks for {name}, and this part has numbers of its own for nodes"
        )
    passed: dict[str, Any] = {}
    lifted: dict[str, Ends] = {}
    for name, value in operands.items():
        used = [end for end in ("_i", "_j") if name + end in names]
        both = used and name in names
        need(not both, f"its message takes {name} as it is, and by the ends of edges")
        if used:
            lifted[name] = _ends(layer, graph, name, value, used)
        else:
            passed[name] = value.made() if type(value) is PartWeights else value
            _check_passed(graph, name, passed[name], name in of_message)
    sent = {name: ends[0] for name, ends in lifted.items() if ends[0] is not None and f"{name}_j" in names}
    received = _received(graph, sent)
    for name, (_, target) in lifted.items():
        passed[name] = (received.get(name), target)
    edges = graph.derived("ends", graph.ends)
    with among_edges():
        return propagate(edges, size=(graph.num_sources + graph.num_halo, graph.num_nodes), **passed)


def _ends(layer: Any, graph: DistributedGraph, name: str, value: Any, used: list[str]) -> Ends:
    """The rows of the sources and of the destinations."""
    if isinstance(value, tuple | list):
        need(len(value) == _PAIR, f"{name}: expected a tensor or a pair")
        source, target = value
    else:
        one = graph.is_bipartite and len(used) > 1
        need(not one, f"{name} is one tensor, and sources and destinations are different nodes")
        source, target = (value if f"_{end}" in used else None for end in "ji")
    for what, rows, x in (("sources", graph.num_sources, source), ("nodes", graph.num_nodes, target)):
        if x is None:
            continue
        where = f"{name}: expected"
        need(is_plain(x), f"{where} a tensor, got {type(x).__name__}")
        need(not wraps(x), WRAPPED)
        need(x.layout is torch.strided, f"{where} a dense tensor")
        rows_first = x.dim() > 0 and layer.node_dim % x.dim() == 0 and x.size(0) == rows
        owned = f"a row for each of the {rows} {what} that rank {graph.rank} owns"
        need(rows_first, f"{where} {owned}, got {list(x.shape)}")
        here = f"a tensor on {graph.device}, where its part is"
        need(x.device == graph.device, f"{where} {here}, got one on {x.device}")
    return source, target


def _check_passed(graph: DistributedGraph, name: str, value: Any, of_edges: bool) -> None:
    """Leaves an operand that a function gets as it is, and that does not fit.

    A message's have a row for each edge; what is done with the reduced messages may have one for each node.
    """
    if not isinstance(value, Tensor) or value.dim() == 0:
        return
    if of_edges or value.size(0) != graph.num_nodes:
        leave_if(edges_reason(name, value, graph))


def _received(graph: DistributedGraph, sources: dict[str, Tensor]) -> dict[str, Tensor]:
    """The owned rows of each tensor, followed by the halo's; one exchange for each dtype."""
    by_dtype: dict[torch.dtype, list[str]] = {}
    for name in sorted(sources):
        by_dtype.setdefault(sources[name].dtype, []).append(name)
    whole = {}
    for names in by_dtype.values():
        flat = [
            each.flatten(1) if each.dim() > 1 else each.unsqueeze(1)
            for each in (sources[name] for name in names)
        ]
        halo = graph.exchange.values(torch.cat(flat, 1))
        widths = [each.size(1) for each in flat]
        for name, rows in zip(names, halo.split(widths, 1), strict=True):
            own = sources[name]
            whole[name] = torch.cat([own, rows.reshape(len(rows), *own.shape[1:])])
    return whole
