"""SAGEConv and GraphConv, which aggregate, multiply, and add a product of the node's own features.

A (X W) pays where W makes the features narrower, unless A X is kept. In either order the linear steps are
those of :mod:`onehop.integrations.pyg.associations.product`.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GraphConv, SAGEConv

from onehop.integrations.pyg import propagate
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.rows import stand_in


def associating_sage(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """SAGEConv's ``forward``, which multiplies first where that pays."""
    summed, message = _summed, SAGEConv.message
    root, normalise = _plus_root, F.normalize

    def forward(self, x, edge_index, size=None):  # type: ignore[no-untyped-def]
        out = None
        if not self.project and type(self).message is message:
            out = summed(self, "lin_l", x, edge_index, {"size": size}, None)
        if out is None:
            return theirs(self, x, edge_index, size)
        if self.root_weight:
            out = root(out, x, self.lin_r)
        return normalise(out, p=2.0, dim=-1) if self.normalize else out

    return stand_in(theirs, forward)


def associating_graph_conv(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """GraphConv's ``forward``, which multiplies first where that pays."""
    summed, root, message = _summed, _plus_root, GraphConv.message

    def forward(self, x, edge_index, edge_weight=None, size=None):  # type: ignore[no-untyped-def]
        out = None
        if type(self).message is message:
            operands = {"edge_weight": edge_weight, "size": size}
            out = summed(self, "lin_rel", x, edge_index, operands, edge_weight)
        if out is None:
            return theirs(self, x, edge_index, edge_weight, size)
        return root(out, x, self.lin_root)

    return stand_in(theirs, forward)


def _summed(
    layer: Any,
    name: str,
    x: Any,
    edge_index: Any,
    operands: dict[str, Any],
    factor: Tensor | None,
) -> Tensor | None:
    """A (X W) or (A X) W, and the bias; None where the layer's linear step has to stay in its module."""
    ends = (x, x) if type(x) is Tensor else x
    lin = layer._modules.get(name)
    if (
        type(ends) is not tuple
        or len(ends) != 2
        or type(edge_index) is not Tensor
        or not order.may_choose(lin, ends[0])
    ):
        return None
    task = propagate.task_of(layer, edge_index, {"x": ends, **operands})
    if not order.linear(task):
        return None
    if order.kept(ends[0], factor, edge_index.size(-1)) or not order.multiplying_first_pays(
        ends[0], lin.weight
    ):
        order.told(task, layer, None)
        return product(task.run(), lin.weight, lin.bias)
    order.told(task, layer, "after")
    task.x = product(ends[0], lin.weight, None)
    out: Tensor = task.run()
    return out if lin.bias is None else out + lin.bias


def _plus_root(out: Tensor, x: Any, lin: Any) -> Tensor:
    own = x if type(x) is Tensor else x[1]
    if own is None:
        return out
    if order.may_choose(lin, own) and lin.bias is None and own.dtype is out.dtype and len(own) == len(out):
        return product(own, lin.weight, out)
    added: Tensor = out + lin(own)
    return added
