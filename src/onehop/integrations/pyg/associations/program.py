"""GCNConv, SAGEConv and GraphConv in a program: a linear step and an aggregation as one operator.

Which order runs depends on the data: the first result has to be finite, and A X may be cached. So the
operator ``onehop::linear_aggregate`` (:mod:`.operator`) makes the choice when the program runs.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv import gcn_conv

from onehop.compiler.modules import itself
from onehop.integrations import session
from onehop.integrations.pyg import programs
from onehop.integrations.pyg.aggregation import Aggregation
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.operator import LINEAR_AGGREGATE
from onehop.integrations.pyg.associations.steps import LINEAR, aggregates_first
from onehop.integrations.pyg.call import Call
from onehop.integrations.pyg.edges.program import NormalisedEdges, ProgramEdges
from onehop.integrations.rows import Function
from onehop.integrations.torch.products import is_torchs

# The dtypes of features for which the operator runs. In 16 bits, sums are rounded before and after a product,
# so the orders differ too much.
_DTYPES = (torch.float32, torch.float64)
_EMPTY = (
    "cached=True and nothing is kept yet: call the model once before it is compiled, or compile it with "
    "fullgraph=True"
)


def gcn(
    gcn_norm: Function | None,
    theirs: Function,
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any = None,
) -> Tensor | None:
    """Computes GCNConv's ``forward`` in a program; None if torch has to trace PyG's code.

    The arguments are those of :func:`.order.gcn`.
    """
    call = Call(itself(layer), None, edge_index, {"x": x, "edge_weight": edge_weight})
    layer = call.layer
    if (
        programs.forward_reason(call) is not None
        or type(layer).message is not GCNConv.message
        or gcn_conv.gcn_norm is not gcn_norm
        or layer.node_dim != -2
        or not isinstance(x, Tensor)
        or (edge_weight is not None and edge_weight.dtype is not x.dtype)
    ):
        return None
    edges, call.operands["edge_weight"] = _edges(layer, x, edge_index, edge_weight)
    if edges is None:
        return None
    task, lin = programs.planned(call, edges), itself(layer.lin)
    if _combines(call, lin, x, biased=False):
        return _run(layer, task, lin, False)
    task.x = lin(x)
    out: Tensor = task.computed()
    return out if layer.bias is None else out + layer.bias


def _edges(layer: Any, x: Tensor, edge_index: Tensor, weight: Any) -> tuple[ProgramEdges | None, Any]:
    """Return the edges that GCNConv aggregates over, and their weights if given.

    The edges are None if the layer has to keep normalised edges that a program cannot make.
    """
    nodes = x.size(-2)
    held = layer._cached_edge_index if layer.normalize else (edge_index, weight)
    if held is not None:
        return ProgramEdges(layer, held[0], (nodes, nodes)), held[1]
    edges = NormalisedEdges(layer, edge_index, nodes)
    if layer.cached:
        if weight is not None:
            return None, None
        if not _counts_when_it_runs():
            programs.refuse(layer, _EMPTY)
            return None, None
        layer._cached_edge_index = edges.listed(x.dtype)
    return edges, weight


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _counts_when_it_runs() -> bool:
    """Return whether a program may contain tensors of data-dependent size, as with ``fullgraph=True``.

    Otherwise, these tensors would end the program (a graph break), and in a loop torch would then compile
    nothing of the surrounding function.
    """
    mode = torch._guards.detect_fake_mode()
    return bool(mode and mode.shape_env and mode.shape_env.allow_dynamic_output_shape_ops)


def rooted(
    layer: Any, linear: str, root: str, x: Any, edge_index: Any, size: Any, weights: dict[str, Any]
) -> Tensor | None:
    """Computes (A X) W^T + b + T V^T in a program; None if torch has to trace PyG's code.

    The arguments are those of :func:`.order.rooted`.
    """
    ends = (x, x) if isinstance(x, Tensor) else x
    call = Call(itself(layer), None, edge_index, {"x": ends, "size": size, **weights})
    layer = call.layer
    lin = itself(getattr(layer, linear))
    if (
        programs.forward_reason(call) is not None
        or not isinstance(ends, tuple)
        or not isinstance(ends[0], Tensor)
        or not _combines(call, lin, ends[0], biased=True)
    ):
        return None
    task = programs.planned(call, ProgramEdges(layer, edge_index, size))
    return _run(layer, task, lin, True, ends[1], getattr(layer, root) if root else None)


def _combines(call: Call, lin: Any, x: Tensor, biased: bool) -> bool:
    """Return whether one operator does both steps; it does not if edge weights need a gradient."""
    weight = call.operands.get("edge_weight")
    return (
        call.reduce in LINEAR
        and order.is_product(lin, x, biased)
        and _multiplies_as_torch()
        and x.dtype in _DTYPES
        and lin.weight.dtype is x.dtype
        and (weight is None or (weight.dtype is x.dtype and not weight.requires_grad))
        and not torch.is_autocast_enabled(x.device.type)
        and session.now.settings.associate
        and not session.now.backend
    )


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _multiplies_as_torch() -> bool:
    return is_torchs()


def _run(
    layer: Any, task: Aggregation, lin: Any, own_before: bool, target: Tensor | None = None, root: Any = None
) -> Tensor:
    """Compute A X W^T + b + T V^T for an aggregation A of X whose weights need no gradient.

    The arguments are those of the eager function in :mod:`.order`.
    """
    x, weight, graph = task.x, lin.weight, task.graph
    before, constant = aggregates_first(x, weight, own_before), not x.requires_grad
    operands = (x, weight, task.weight, task.scale, graph.number, graph.num_dst)
    choices = (task.reduce == "mean", before, own_before, constant)
    out: Tensor = LINEAR_AGGREGATE(*operands, *choices)[0]
    bias = lin.bias if own_before else layer.bias
    out = out if bias is None else out + bias
    return out if target is None or root is None else out + root(target)
