"""``propagate`` in a program: an operator over the graph of the ``edge_index``, found when it runs."""

from typing import Any

from torch import Tensor

from onehop.graph.handle import GraphInProgram
from onehop.integrations import session
from onehop.integrations.pyg.leave import FLOATS
from onehop.integrations.pyg.programs import attention, conditions
from onehop.integrations.pyg.programs.edges import EdgesInProgram
from onehop.integrations.pyg.programs.graphs import graph_in_program
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.ops.aggregate import reduce_rows

_SIMPLE = 4
_BATCHED = 3


def propagate(layer: Any, edge_index: Any, args: tuple[Any, ...], operands: dict[str, Any]) -> Any:
    """The aggregated messages of a layer that is traced; a sentence where PyG's code is to be traced."""
    if type(edge_index) is EdgesInProgram:
        return attention.attend(layer, edge_index, operands)
    sentence = conditions.reason(layer, edge_index)
    if sentence is not None:
        return sentence
    form = conditions.form_of(type(layer))
    if len(form) != _SIMPLE:
        # Where its forward is patched too, that has said why it is left to PyG.
        return "" if conditions.has_noting_forward(type(layer)) else conditions.NOT_TRACED
    if args:
        return "propagate gets other operands than the message needs"
    return _aggregate(layer, form, edge_index, operands)


def _aggregate(layer: Any, form: tuple[str, ...], edge_index: Tensor, operands: dict[str, Any]) -> Any:
    source, weighted, subtracted, required = form
    size = operands.get("size")
    given = set(operands) - {"size"}
    if given != {name for name in (source, weighted, subtracted) if name}:
        return "propagate gets other operands than the message needs"
    forwards = layer.flow == "source_to_target"
    x, target = operands[source], None
    if isinstance(x, tuple | list):
        if len(x) != 2 or (not forwards and x[0] is not x[1]):
            return "bipartite features meet flow='target_to_source'"
        x, target = x
    sentence = conditions.features_reason(x, (2, _BATCHED), edge_index)
    if sentence is not None:
        return sentence
    if not (x.dim() == 2 and layer.node_dim in (-2, 0)) and not (
        x.dim() == _BATCHED and layer.node_dim == -2
    ):
        return "node_dim is not the first of two dimensions, nor the middle one of three"
    weight = operands[weighted] if weighted else None
    if weight is None and required:
        return "PyG is left to report the missing weight"
    if weight is not None:
        if weight.dim() == 2 and weight.size(1) == 1:
            weight = weight.squeeze(1)
        if weight.dim() != 1 or weight.size(0) != edge_index.size(1) or weight.dtype not in FLOATS:
            return "the edge weight is not one number an edge"
    if subtracted:
        return conditions.NOT_TRACED
    rows = _rows(layer, x, target, size, forwards)
    if isinstance(rows, str):
        return rows
    reduce = reduction(layer)
    conditions.note(layer, x, "source * weight" if weight is not None else "source", reduce)
    graph = graph_in_program(edge_index, *rows, forwards)
    return aggregate(graph, x, weight, None, reduce)


def aggregate(
    graph: GraphInProgram, x: Tensor, weight: Tensor | None, scale: Tensor | None, reduce: str
) -> Tensor:
    """The aggregated rows.

    Args:
        graph: The graph.
        x: [num_src, F] or [B, num_src, F].
        weight: [E] or more, or None.
        scale: [N], multiplies sources and destinations, or None.
        reduce: "sum", "mean", "max" or "min".

    Returns:
        [num_dst, F] or [B, num_dst, F].
    """
    batched = x.dim() == _BATCHED
    over: Any = graph
    out = reduce_rows(
        over,
        x.transpose(0, 1) if batched else x,
        weight=weight,
        reduce=reduce,
        src_scale=scale,
        dst_scale=scale,
        backend=session.now.backend,
    )
    return out.transpose(0, 1) if batched else out


def reduction(layer: Any) -> str:
    """The reduction of the layer's aggregation module, which the conditions have looked at."""
    return REDUCTIONS[type(layer.aggr_module)]


def _rows(layer: Any, x: Tensor, target: Any, size: Any, forwards: bool) -> tuple[int, int] | str:
    """Numbers of sources and destinations, as PyG finds them; or why PyG is left to report what is wrong."""
    sizes: list[Any] = [None, None] if size is None else list(size)
    sending = 0 if forwards else 1
    if sizes[sending] is None:
        sizes[sending] = x.size(layer.node_dim)
    elif sizes[sending] != x.size(layer.node_dim):
        return "PyG is left to report what does not fit"
    if target is not None:
        if not isinstance(target, Tensor) or target.dim() < 2:
            return "the destinations' features are no matrix"
        if sizes[1] is None:
            sizes[1] = target.size(layer.node_dim)
        elif sizes[1] != target.size(layer.node_dim):
            return "PyG is left to report what does not fit"
    sources: Any = sizes[sending]
    receiving: int | None = sizes[1 - sending]
    return sources, sources if receiving is None else receiving
