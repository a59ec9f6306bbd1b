"""The order of a layer's linear step and its aggregation: A (X W) or (A X) W, whichever costs less.

The first part checks the conditions, for eager layers and for programs (:mod:`.program`); :mod:`.steps` makes
the choice. The second part runs eager layers; each function passes the layer's linear steps, its edges, and
the order that PyG uses.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv
from torch_geometric.nn.conv import gcn_conv
from torch_geometric.nn.dense.linear import Linear

from onehop import thresholds
from onehop.graph import Graph
from onehop.graph.identity import remembered
from onehop.integrations import session
from onehop.integrations.pyg.aggregation import Aggregation
from onehop.integrations.pyg.associations.few import FORWARD, rooted_over_few
from onehop.integrations.pyg.associations.product import (
    gradient_where_edges_end,
    has_edgeless_rows,
    prefix_product,
    product,
)
from onehop.integrations.pyg.associations.steps import LINEAR, aggregates_first, first_step
from onehop.integrations.pyg.call import begin
from onehop.integrations.pyg.edges.kept import COUNTING, Symmetric, SymmetricKey, normalised_graph
from onehop.integrations.pyg.edges.sizes import is_too_small
from onehop.integrations.pyg.edges.sparse_tensors import is_sparse_tensor
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.integrations.pyg.stages import aggregation_of, aggregation_over
from onehop.integrations.rows import Function
from onehop.integrations.torch.products import THEIRS
from onehop.ops.contexts import autocast_dtype, autocasts, context_reason, saving_is_watched, wraps

Run = Callable[..., Tensor | None]
# The key, among the results derived from a graph, of the number of rows before the leaves.
_LEAVES = "rows before leaves"


# Conditions


def is_product(lin: Any, x: Tensor, biased: bool) -> bool:
    """Return whether a module only multiplies by its weight; works also while a program is traced.

    Args:
        lin: The module.
        x: Its input.
        biased: Whether the module may add a bias.
    """
    return (
        type(lin) is Linear
        and Linear.forward is FORWARD
        and "forward" not in lin.__dict__
        # torch.compile guards the number of hooks, but not the truth value of the dictionary.
        and len(lin._forward_hooks) + len(lin._forward_pre_hooks) == 0
        and len(lin._backward_hooks) + len(lin._backward_pre_hooks) == 0
        and x.dim() == 2
        and lin.weight.size(1) == x.size(1)
        and (biased or lin.bias is None)
    )


def is_plain(lin: Any, x: Any, biased: bool, *others: Tensor) -> bool:
    """Return whether an eager layer may multiply without calling the module; the context is not checked.

    The arguments are those of :func:`is_product`, and other tensors that the layer gets.
    """
    if type(x) is not Tensor or x.layout is not torch.strided or not is_product(lin, x, biased):
        return False
    weight = lin.weight
    return (
        F.linear is THEIRS  # this is products.is_torchs(), without the call
        and not weight.is_inference()  # such a weight gets no gradient, although requires_grad may be set
        and (weight.dtype is x.dtype or None not in (autocast_dtype(x), autocast_dtype(weight)))
        and not wraps(x, weight, *others)
        # Both are on the same device, not on "meta", and on a GPU autocast is off.
        and (weight.is_cpu if x.is_cpu else weight.device == x.device and not x.is_meta and not autocasts(x))
    )


def may_choose(lin: Any, x: Any, biased: bool, *others: Tensor) -> bool:
    """Return whether an eager layer's order may be chosen; the arguments are those of :func:`is_plain`."""
    return (
        context_reason() is None
        and not saving_is_watched()
        and session.now.settings.associate
        and is_plain(lin, x, biased, *others)
        # On a GPU, the host has to wait to find out whether the first result is finite.
        and (x.is_cpu or x.numel() >= thresholds.now.awaited_numbers)
    )


def is_linear(task: Any) -> bool:
    """Return whether a task is an aggregation that a linear step may precede or follow.

    Weights of a wider dtype are excluded: in PyG, the messages get the wider dtype, and a linear step then
    raises an error.
    """
    return (
        isinstance(task, Aggregation)
        and task.reduce in LINEAR
        and task.subtrahend is None
        and task.x.dim() == 2
        and (task.weight is None or torch.promote_types(task.x.dtype, task.weight.dtype) == task.x.dtype)
    )


# Eager layers of one aggregation


def _run(
    layer: Any,
    task: Any,
    lin: Any,
    own_before: bool,
    may_keep: bool = True,
    target: Any = None,
    root: Any = None,
) -> Tensor | None:
    """Compute A X W^T + b + T V^T in the cheaper order; None if A is not linear.

    Args:
        layer: The layer. Its bias is b if its own order is A (X W); else b is the bias of ``lin``.
        task: The aggregation of X.
        lin: The linear step.
        own_before: Whether the layer's own order is (A X) W.
        may_keep: Whether A X may be kept if X is constant.
        target: T, the destinations' own features, or None.
        root: The linear step of T, or None.
    """
    if not is_linear(task):
        return None
    x, graph, weight, bias = task.x, task.graph, lin.weight, lin.bias if own_before else layer.bias
    before = aggregates_first(x, weight, own_before)
    constant = not before and may_keep and task.is_constant()
    first, before = first_step(x, weight, before, own_before, constant, task.run)
    changed = before is not own_before
    begin(task, layer, ("before" if before else "after") if changed else None)
    alone, autocast = target is None or root is None, torch.is_autocast_enabled(x.device.type)
    # If this holds, both products run as one step, which adds the second to the first.
    joins = (
        not alone
        and is_plain(root, target, False)
        and target.dtype is x.dtype
        and len(target) == graph.num_dst
    )
    if before and joins:
        return prefix_product(target, root.weight, first[: _rows_before_leaves(graph)], weight, bias)
    if changed and autocast:
        out = _in_own_dtype(task, first, weight, bias, before)
    elif before:
        out = product(first, weight, bias)
    else:
        task.x = first
        out = task.run() if bias is None else task.run() + bias
    if changed and before and bias is None and out.requires_grad and has_edgeless_rows(graph):
        # With a bias, the gradient of the bias has a NaN in both orders anyway.
        out.register_hook(functools.partial(gradient_where_edges_end, graph))
    if joins and not autocast:
        return product(target, root.weight, out)
    return out if alone else out + root(target)


def _in_own_dtype(
    task: Aggregation, first: Tensor, weight: Tensor, bias: Tensor | None, before: bool
) -> Tensor:
    """Run the second step and the bias under autocast, in the result dtype of the layer's own order.

    If a linear step comes last in that order, the dtype is autocast's. If an aggregation comes last, it is
    the dtype of the messages, which are products times a factor.
    """
    dtype = autocast_dtype(task.x) or task.x.dtype
    if before:
        factor = task.scale if task.weight is None else task.weight
        widened = dtype if factor is None else torch.promote_types(dtype, factor.dtype)
        out = product(first, weight, None).to(widened)
    else:
        task.x = first
        out, bias = task.run().to(dtype), None if bias is None else bias.to(dtype)
    return out if bias is None else out + bias


def _rows_before_leaves(graph: Graph) -> int | None:
    """Return how many destinations come before the trailing ones without edges; None means all.

    In a sampled mini-batch, most nodes are leaves, which have no edges and come last. For a graph that was
    made on a GPU, the number is not computed, because the host would have to wait.
    """
    if graph.made_on is not None:
        return None
    rows: int | None = graph.derived.get(_LEAVES)
    if rows is None:
        rows = graph.derived[_LEAVES] = int(torch.searchsorted(graph.rowptr, graph.num_edges))
    return rows


def gcn(
    gcn_norm: Function | None, theirs: Function, layer: Any, x: Any, edge_index: Any, edge_weight: Any = None
) -> Tensor | None:
    """Computes GCNConv's ``forward``; None if PyG's code has to run.

    Args:
        gcn_norm: The patch's own normalisation; None if another library has replaced PyG's.
        theirs: PyG's method.
        layer: The layer.
        x: [N, K].
        edge_index: [2, E], or a sparse matrix.
        edge_weight: [E] or None.
    """
    lin, listed = layer._modules.get("lin"), type(edge_index) is Tensor
    if (
        not (listed or is_sparse_tensor(edge_index))
        or is_too_small(edge_index, x, layer.out_channels, listed=True, loops=layer.add_self_loops)
        or not may_choose(lin, x, False, *((edge_index,) if listed else ()))
        or layer.node_dim != -2
        or type(layer).message is not GCNConv.message
    ):
        return None
    of_edges: Symmetric | None = None
    if (
        edge_weight is None
        and listed
        and layer.normalize
        and not layer.improved
        and not layer.cached
        and layer._cached_edge_index is None
        and gcn_conv.gcn_norm is gcn_norm
        and x.dtype in COUNTING
        and x.is_cpu
        and edge_index.is_cpu
        and edge_index.layout is torch.strided
        and not session.now.settings.backend
    ):
        # In most calls, weights are products of a number for each node, so no weight for each edge is made.
        key = SymmetricKey(x.size(0), layer.add_self_loops, layer.flow == "source_to_target", x.dtype)
        of_edges = remembered(edge_index, key=key, make=lambda: normalised_graph(edge_index, key))
    if of_edges is not None:
        task = aggregation_over(of_edges.graph, layer, x, None, of_edges.scale)
    else:
        edges, weight = _gcn_edges(layer, x, edge_index, edge_weight)
        task = aggregation_of(layer, edges, {"x": x, "edge_weight": weight})
    # Normalised weights are new tensors in every call, and may differ between calls.
    return _run(layer, task, lin, False, may_keep=edge_weight is None or not layer.normalize)


def _gcn_edges(layer: Any, x: Tensor, edge_index: Any, edge_weight: Any) -> tuple[Any, Any]:
    """Return the edges and weights that GCNConv's own ``forward`` would aggregate with."""
    if not layer.normalize:
        return edge_index, edge_weight
    listed = type(edge_index) is Tensor
    held = layer._cached_edge_index if listed else layer._cached_adj_t
    if held is not None:
        return held if listed else (held, edge_weight)
    edges = normalised(layer, x, edge_index, edge_weight, layer.add_self_loops, layer.improved)
    if layer.cached and listed:
        layer._cached_edge_index = edges
    elif layer.cached:
        layer._cached_adj_t = edges[0]
    return edges


def normalised(
    layer: Any, x: Tensor, edge_index: Any, edge_weight: Any, loops: bool, improved: bool = False
) -> tuple[Any, Any]:
    """Return edges and weights normalised as in GCN, from the cache that all layers share."""
    edges = gcn_conv.gcn_norm(edge_index, edge_weight, x.size(0), improved, loops, layer.flow, x.dtype)
    # If the edges are a SparseTensor, PyG passes the weight on without using it.
    return (edges, edge_weight) if is_sparse_tensor(edges) else (edges[0], edges[1])


def rooted(
    layer: Any, linear: str, root: str, x: Any, edge_index: Any, size: Any, weights: dict[str, Any]
) -> Tensor | None:
    """Computes (A X) W^T + b + T V^T; None if PyG's code has to run.

    Args:
        layer: The layer.
        linear: The name of the linear step of the aggregated features.
        root: The name of the linear step of the destinations' own features T; empty for none.
        x: [N, K], or a pair of the sources' features and the destinations' features or None.
        edge_index: [2, E], or a sparse matrix.
        size: (num_src, num_dst) or None.
        weights: The edge weight by its argument name; empty if the layer takes none.
    """
    # The condition that excludes most layers is tested first.
    if type(layer._modules.get("aggr_module")) not in REDUCTIONS:
        return None
    ends = (x, x) if type(x) is Tensor else x
    if type(ends) is not tuple or len(ends) != 2:
        return None
    operands = {"x": ends, "size": size, **weights}
    if is_too_small(edge_index, x, listed=True):
        return rooted_over_few(layer, linear, root, edge_index, operands)
    lin, listed = getattr(layer, linear), type(edge_index) is Tensor
    if not (listed or is_sparse_tensor(edge_index)) or not may_choose(lin, ends[0], True):
        return None
    task = aggregation_of(layer, edge_index, operands)
    return _run(layer, task, lin, True, target=ends[1], root=getattr(layer, root) if root else None)


def sage(run: Run, theirs: Function, layer: Any, x: Any, edge_index: Any, size: Any = None) -> Tensor | None:
    """Computes SAGEConv's ``forward``, by :func:`rooted` or its variants; None if PyG's code has to run."""
    if layer.project or type(layer).message is not SAGEConv.message:
        return None
    out = run(layer, "lin_l", "lin_r" if layer.root_weight else "", x, edge_index, size, {})
    return F.normalize(out, p=2.0, dim=-1) if out is not None and layer.normalize else out


def graph_conv(
    run: Run,
    theirs: Function,
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any = None,
    size: Any = None,
) -> Tensor | None:
    """Computes GraphConv's ``forward``, by :func:`rooted` or its variants; None if PyG's code has to run."""
    if type(layer).message is not GraphConv.message:
        return None
    return run(layer, "lin_rel", "lin_root", x, edge_index, size, {"edge_weight": edge_weight})
