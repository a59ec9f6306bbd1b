"""``propagate`` in a program: an operator over the graph of the ``edge_index``, found when it runs."""

from typing import Any

from torch import Tensor

from onehop.graph.handle import GraphInProgram
from onehop.integrations import session
from onehop.integrations.pyg.call import Call
from onehop.integrations.pyg.edges.program import EdgesInProgram, ProgramEdges
from onehop.integrations.pyg.leave import OTHER_OPERANDS
from onehop.integrations.pyg.programs import attention, conditions
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.integrations.pyg.rules.plain import SOURCE, WEIGHTED
from onehop.integrations.pyg.rules.table import TABLE
from onehop.ops.aggregate import reduce_rows

_BATCHED = 3
# Operands of a message that subtracts.
_DIFFERENCE = 3


def reason(layer: Any, edge_index: Any, args: tuple[Any, ...], operands: dict[str, Any]) -> str | None:
    """Return why PyG's code is traced for a layer, whatever its tensors; None if it need not be.

    Not raised, because torch 2.6 traces no exception of this package.
    """
    if type(edge_index) is EdgesInProgram:
        return None
    found = conditions.reason(layer, edge_index)
    if found is not None:
        return found
    rule = TABLE[conditions.rule_name(type(layer))]
    if rule.attends:
        # Where its forward is patched too, that has said why it is left to PyG.
        return "" if conditions.has_noting_forward(type(layer)) else conditions.NOT_TRACED
    expected = set(rule.operands)
    if args or set(operands) - {"size"} != expected:
        return OTHER_OPERANDS
    return None if len(expected) < _DIFFERENCE else conditions.NOT_TRACED


def propagate(layer: Any, edge_index: Any, operands: dict[str, Any]) -> Any:
    """The aggregated messages of a layer that is traced, for which :func:`reason` has nothing to say.

    Raises:
        Leave: Torch has to trace PyG's code.
    """
    if type(edge_index) is EdgesInProgram:
        return attention.attend(layer, edge_index, operands)
    rule = TABLE[conditions.rule_name(type(layer))]
    size = operands.get("size")
    sizes = [None, None] if size is None else list(size)
    edges = ProgramEdges(edge_index, edge_index, layer.flow == "source_to_target", sizes)
    call = Call(layer, reduction(layer), edges, operands, session.now.backend)
    plan = call.lowered(rule)
    conditions.note(layer, plan.x, SOURCE if plan.weight is None else WEIGHTED, plan.reduce)
    return aggregate(plan.graph, plan.x, plan.weight, None, plan.reduce)


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
