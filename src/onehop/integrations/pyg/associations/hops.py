"""SGConv and TAGConv, which aggregate several times and multiply at the end, or at every step.

Where W makes the features narrower, A (... (A (X W))) pays; and the sum of A^k X W_k over k is then
X W_0 + A (X W_1 + A (X W_2 + ...)), one aggregation of the narrow features for each step.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.nn import SGConv, TAGConv

from onehop.integrations.pyg import tasks
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.pyg.sizes import is_too_small, number_of_edges
from onehop.integrations.rows import stand_in
from onehop.ops.contexts import autocast_dtype, compiling


def associating_sg(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """SGConv's ``forward``, which multiplies first where that pays."""
    ours, in_program = _sg, compiling

    def forward(self, x, edge_index, edge_weight=None):  # type: ignore[no-untyped-def]
        out = None if in_program() else ours(self, x, edge_index, edge_weight)
        return theirs(self, x, edge_index, edge_weight) if out is None else out

    return stand_in(theirs, forward)


def associating_tag(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """TAGConv's ``forward``, which multiplies first where that pays."""
    ours, in_program = _tag, compiling

    def forward(self, x, edge_index, edge_weight=None):  # type: ignore[no-untyped-def]
        out = None if in_program() else ours(self, x, edge_index, edge_weight)
        return theirs(self, x, edge_index, edge_weight) if out is None else out

    return stand_in(theirs, forward)


def _sg(layer: Any, x: Any, edge_index: Any, edge_weight: Any) -> Tensor | None:
    lin = layer._modules.get("lin")
    if layer.cached or layer.K < 1 or type(layer).message is not SGConv.message:
        return None
    if not _pays([lin], x, edge_index, edge_weight):
        return None
    edges, weight = order.normalised(layer, x, edge_index, edge_weight, layer.add_self_loops)
    task = tasks.task_of(layer, edges, {"x": x, "edge_weight": weight})
    if not order.linear(task):
        return None
    out = order.multiplied_first(x, lin.weight, None, edge_weight, number_of_edges(edge_index))
    if not order.is_finite(out):
        return None
    for _ in range(layer.K):
        tasks.begin(task, layer, "after")
        task.x = out
        out = task.run()
    return out if lin.bias is None else out + lin.bias


def _tag(layer: Any, x: Any, edge_index: Any, edge_weight: Any) -> Tensor | None:
    lins = list(layer.lins)
    if layer.K < 1 or type(layer).message is not TAGConv.message:
        return None
    if not _pays(lins, x, edge_index, edge_weight):
        return None
    edges, weight = edge_index, edge_weight
    if layer.normalize:
        edges, weight = order.normalised(layer, x, edge_index, edge_weight, add_self_loops=False)
    task = tasks.task_of(layer, edges, {"x": x, "edge_weight": weight})
    if not order.linear(task):
        return None
    out = order.multiplied_first(x, lins[-1].weight, lins[-1].bias, edge_weight, number_of_edges(edge_index))
    if not order.is_finite(out):
        return None
    for lin in reversed(lins[:-1]):
        tasks.begin(task, layer, "after")
        task.x = out
        out = product(x, lin.weight, task.run())
    return out if layer.bias is None else out + layer.bias


def _pays(lins: list[Any], x: Any, edge_index: Any, edge_weight: Any) -> bool:
    if (
        not order.are_edges(edge_index)
        or is_too_small(edge_index, x)
        or (isinstance(x, Tensor) and autocast_dtype(x) is not None)
        or not all(order.may_choose(lin, x) for lin in lins)
    ):
        return False
    aggregating, multiplying = order.columns(x, lins[0].weight)
    return multiplying < aggregating and not order.kept(x, edge_weight, number_of_edges(edge_index))
