"""SGConv and TAGConv, which aggregate several times, and multiply at the end or at every step.

If W narrows the features, the sum of A^k X W_k over k is computed as X W_0 + A (X W_1 + A (X W_2 + ...)),
where each step aggregates the narrow features.
"""

from typing import Any

from torch import Tensor
from torch_geometric.nn import SGConv, TAGConv

from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.associations.order import is_linear, may_choose, normalised
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.pyg.associations.steps import aggregates_first, is_finite, is_kept
from onehop.integrations.pyg.call import begin
from onehop.integrations.pyg.edges.sizes import is_too_small, number_of_edges
from onehop.integrations.pyg.edges.sparse_tensors import is_sparse_tensor
from onehop.integrations.pyg.stages import aggregation_of
from onehop.integrations.rows import Function
from onehop.ops.contexts import autocast_dtype


def sg(theirs: Function, layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Tensor | None:
    """Computes SGConv's ``forward``; None if PyG's code has to run."""
    if layer.cached or type(layer).message is not SGConv.message:
        return None
    lins = [None] * layer.K + [layer.lin]
    return _powers(layer, lins, layer.add_self_loops, x, edge_index, edge_weight)


def tag(theirs: Function, layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Tensor | None:
    """Computes TAGConv's ``forward``; None if PyG's code has to run."""
    if type(layer).message is not TAGConv.message:
        return None
    loops = False if layer.normalize else None
    return _powers(layer, list(layer.lins), loops, x, edge_index, edge_weight)


def _powers(
    layer: Any, lins: list[Any], loops: bool | None, x: Any, edge_index: Any, edge_weight: Any
) -> Tensor | None:
    """Computes the sum of A^k X W_k and adds the bias; None if PyG's order is cheaper or has to be kept.

    Args:
        layer: The layer. Its bias is added, or the bias of the last linear step if there is only one.
        lins: The linear step of each power of A, from 0 on, or None; the last one is a module.
        loops: Whether A is normalised with self loops; None means that it is not normalised.
        x: [N, K].
        edge_index: [2, E], or a sparse matrix.
        edge_weight: [E] or None.
    """
    only = lins[0] is None
    if (
        len(lins) == 1
        or not (type(edge_index) is Tensor or is_sparse_tensor(edge_index))
        or is_too_small(edge_index, x, listed=True, loops=bool(loops))
        or not all(lin is None or may_choose(lin, x, only) for lin in lins)
        or autocast_dtype(x) is not None
        or aggregates_first(x, lins[-1].weight, True)
    ):
        return None
    constant = reuse.constant(x, edge_weight, number_of_edges(edge_index))
    if constant and is_kept(x):
        return None
    edges, weight = edge_index, edge_weight
    if loops is not None:
        edges, weight = normalised(layer, x, edge_index, edge_weight, loops)
    task = aggregation_of(layer, edges, {"x": x, "edge_weight": weight})
    if not is_linear(task):
        return None
    out = product(x, lins[-1].weight, None, reuse.note_training if constant else None)
    if not is_finite(out):
        return None
    for lin in reversed(lins[:-1]):
        begin(task, layer, "after")
        task.x = out
        out = task.run() if lin is None else product(x, lin.weight, task.run())
    bias = lins[-1].bias if only else layer.bias
    return out if bias is None else out + bias
