"""SAGEConv and GraphConv, which aggregate, multiply, and add a product of the node's own features.

A (X W) pays where W makes the features narrower, unless A X is kept. In either order the linear steps are
those of :mod:`onehop.integrations.pyg.associations.product`. In a sampled mini-batch most nodes are leaves,
which have no edges, and come last: of (A X) W the rows before them are multiplied alone.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GraphConv, SAGEConv

from onehop import thresholds
from onehop.graph import Graph
from onehop.integrations.pyg import tasks
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import prefix_product, product
from onehop.integrations.pyg.sizes import is_too_small
from onehop.integrations.rows import stand_in
from onehop.ops import contexts
from onehop.ops.contexts import autocast_dtype

# With more of the rows to multiply, there is little to save.
_LARGEST_SHARE = 0.75


def associating_sage(theirs: Callable[..., Any], traced: Callable[..., Any]) -> Callable[..., Any]:
    """SAGEConv's ``forward``, which multiplies first where that pays.

    Args:
        theirs: PyG's.
        traced: What runs while a program is traced; None from it means PyG's own.
    """
    both, message, normalise, small = _both, SAGEConv.message, F.normalize, is_too_small
    is_compiling, state = torch.compiler.is_compiling, contexts

    def forward(self, x, edge_index, size=None):  # type: ignore[no-untyped-def]
        out = None
        if is_compiling() or state.as_program:
            if not self.project and type(self).message is message:
                root = self.lin_r if self.root_weight else None
                out = traced(self, "lin_l", root, x, edge_index, size, None)
        elif not small(edge_index, x) and not self.project and type(self).message is message:
            root = self.lin_r if self.root_weight else None
            out = both(self, "lin_l", root, x, edge_index, {"size": size}, None)
        if out is None:
            return theirs(self, x, edge_index, size)
        return normalise(out, p=2.0, dim=-1) if self.normalize else out

    return stand_in(theirs, forward)


def associating_graph_conv(theirs: Callable[..., Any], traced: Callable[..., Any]) -> Callable[..., Any]:
    """GraphConv's ``forward``, which multiplies first where that pays.

    Args:
        theirs: PyG's.
        traced: What runs while a program is traced; None from it means PyG's own.
    """
    both, message, small = _both, GraphConv.message, is_too_small
    is_compiling, state = torch.compiler.is_compiling, contexts

    def forward(self, x, edge_index, edge_weight=None, size=None):  # type: ignore[no-untyped-def]
        out = None
        if is_compiling() or state.as_program:
            if type(self).message is message:
                out = traced(self, "lin_rel", self.lin_root, x, edge_index, size, edge_weight)
        elif not small(edge_index, x) and type(self).message is message:
            operands = {"edge_weight": edge_weight, "size": size}
            out = both(self, "lin_rel", self.lin_root, x, edge_index, operands, edge_weight)
        return theirs(self, x, edge_index, edge_weight, size) if out is None else out

    return stand_in(theirs, forward)


def _both(
    layer: Any,
    name: str,
    root: Any,
    x: Any,
    edge_index: Any,
    operands: dict[str, Any],
    factor: Tensor | None,
) -> Tensor | None:
    """A (X W) or (A X) W, the bias, and the product of ``root``, a module or None, with the own features.

    None where the layer's linear step has to stay in its module.
    """
    ends = (x, x) if type(x) is Tensor else x
    lin = layer._modules.get(name)
    if (
        type(ends) is not tuple
        or len(ends) != 2
        or not order.are_edges(edge_index)
        or not order.may_choose(lin, ends[0])
    ):
        return None
    task = tasks.task_of(layer, edge_index, {"x": ends, **operands})
    if not order.linear(task):
        return None
    multiplied, edges = None, task.graph.num_edges
    aggregating, multiplying = order.columns(ends[0], lin.weight)
    if multiplying < aggregating and not order.kept(ends[0], factor, edges):
        made = order.multiplied_first(ends[0], lin.weight, None, factor, edges)
        multiplied = made if order.is_finite(made) else None
    if multiplied is None:
        tasks.begin(task, layer)
        summed, own = task.run(), ends[1]
        if _joins(root, own, summed):
            # One step for both products: the second is added to the first where that lies.
            rows = _rows_before_leaves(task.graph)
            return prefix_product(own, root.weight, summed[:rows], lin.weight, lin.bias)
        return _plus_root(product(summed, lin.weight, lin.bias), own, root)
    tasks.begin(task, layer, "after")
    task.x = multiplied
    out: Tensor = task.run()
    dtype = autocast_dtype(ends[0])
    if dtype is None:
        return _plus_root(out if lin.bias is None else out + lin.bias, ends[1], root)
    # In PyG's order the linear step comes last, and the result is of its dtype.
    out = out.to(dtype)
    return _plus_root(out if lin.bias is None else out + lin.bias.to(dtype), ends[1], root)


def _rows_before_leaves(graph: Graph) -> int | None:
    """After how many destinations none has edges; None unless those that follow are worth leaving out.

    None too for a graph that was made on a device, for which the host would have to wait.
    """
    if graph.num_dst < thresholds.now.leaf_rows or graph.made_on is not None:
        return None
    rows = int(torch.searchsorted(graph.rowptr, graph.num_edges))
    return rows if rows < graph.num_dst * _LARGEST_SHARE else None


def _joins(root: Any, own: Any, out: Tensor) -> bool:
    """Return whether the product with the own features can be made here, and added to rows such as these."""
    return (
        root is not None
        and order.is_plain(root, own)
        and root.bias is None
        and (autocast_dtype(own) or own.dtype) is (autocast_dtype(out) or out.dtype)
        and len(own) == len(out)
    )


def _plus_root(out: Tensor, own: Any, root: Any) -> Tensor:
    if own is None or root is None:
        return out
    if _joins(root, own, out):
        return product(own, root.weight, out)
    added: Tensor = out + root(own)
    return added
