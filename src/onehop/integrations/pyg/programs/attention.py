"""GAT, GATv2 and graph transformers in a program: PyG's ``forward`` round one operator."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.dense import Linear

from onehop.integrations import session
from onehop.integrations.pyg.call import Call
from onehop.integrations.pyg.edges.program import EdgesInProgram, ProgramEdges, with_loops
from onehop.integrations.pyg.leave import LEFT_TO_PYG, leave_if, need
from onehop.integrations.pyg.programs import conditions
from onehop.integrations.pyg.rules.table import TABLE

_LAYERS = {"gat": "GATConv", "gatv2": "GATv2Conv", "dot": "TransformerConv"}
_VECTOR = 1
# Not unions, which torch 2.6 does not trace.
_PAIRS, _NUMBERS = (tuple, list), (int, float)


def reason(layer: Any, edge_index: Any, asked: Any) -> str | None:
    """Return why PyG's ``forward`` is traced as it is, whatever the features; None if it need not be.

    Args:
        layer: The layer.
        edge_index: [2, E].
        asked: Whether, and how, the attention weights are asked for; None means not.
    """
    found = conditions.reason(layer, edge_index)
    if found is not None:
        return found
    if asked is not None:
        return conditions.ASKED
    patched = conditions.attention_kind(type(layer)) and conditions.is_patched(type(layer))
    return None if patched else conditions.NOT_TRACED


def edges_of(layer: Any, x: Any, edge_index: Any, features: Any) -> EdgesInProgram:
    """The edges to call PyG's ``forward`` with.

    Args:
        layer: The layer, for which :func:`reason` has nothing to say.
        x: [N, K], or a pair.
        edge_index: [2, E].
        features: [E, L] or [E], of the edges, or None.

    Raises:
        Leave: Torch has to trace PyG's own code.
    """
    kind = conditions.attention_kind(type(layer))
    ends = x if isinstance(x, _PAIRS) else (x, x)
    for end in ends:
        if end is not None:
            leave_if(conditions.features_reason(end, (2,), edge_index))
    _check_setup(layer, kind, ends, features, edge_index)
    return EdgesInProgram(edge_index, kind)


def _check_setup(layer: Any, kind: str, ends: Any, features: Any, edge_index: Tensor) -> None:
    """Leaves a layer whose ``forward`` cannot be called with such edges, as it is set up."""
    autocast = torch.is_autocast_enabled(edge_index.device.type)
    need(not autocast, "autocast decides on the dtypes of its scores")
    usual = layer.flow == "source_to_target" and layer.node_dim == 0
    need(usual, "it is in a compiled program, and flow or node_dim is not as usual")
    need(type(layer.aggr_module).__name__ == "SumAggregation", "its aggregation is not a sum")
    hooks = len(layer._edge_update_forward_pre_hooks) + len(layer._edge_update_forward_hooks)
    need(hooks == 0, "message passing hooks are registered on it")
    own = "edge_update" in layer.__dict__ or "edge_updater" in layer.__dict__
    need(not own, "this instance overrides edge_update")
    need(len(ends) == 2 and (ends[1] is not None or kind == "gat"))
    linear = layer.lin_edge
    if features is None:
        need(kind != "dot" or linear is None)
        return
    if linear is None:
        # GAT leaves such features unread; the others complain.
        need(kind == "gat")
        return
    need(features.dim() in (_VECTOR, 2) and features.size(0) == edge_index.size(1))
    need(kind != "dot" or features.dim() != _VECTOR, LEFT_TO_PYG)
    plain = type(linear) is Linear and linear.bias is None
    need(plain, "the edge features go through a layer other than PyG's Linear without bias")
    need(conditions.is_untouched(linear), "hooks are registered on a module in it")
    if kind != "dot" and layer.add_self_loops:
        value = layer.fill_value
        fills = isinstance(value, _NUMBERS) or value == "mean"
        need(fills, f"it is in a compiled program, and its self loops are filled by {value!r}")


def attend(layer: Any, given: EdgesInProgram, operands: dict[str, Any]) -> Tensor:
    """The aggregated messages of a layer whose ``forward`` was called with such edges."""
    edge_index, size = given.edge_index, operands.get("size")
    sizes: list[int | None] = [None, None] if size is None else list(size)
    loops = 0
    if given.kind != "dot" and layer.add_self_loops:
        source, target = operands["x"]
        rows = (source.size(0), source.size(0) if target is None else target.size(0))
        loops = min(rows if size is None else size)
        pending = operands["alpha"]
        features = _with_loops(layer, edge_index, pending.operands["edge_attr"], loops)
        pending.operands = {**pending.operands, "edge_attr": features}
    edges = ProgramEdges(given, edge_index, True, sizes, loops)
    call = Call(layer, "sum", edges, operands, session.now.backend)
    rule = TABLE[_LAYERS[given.kind]]
    plan = call.lowered(rule)
    conditions.note(layer, plan.x, plan.form, "sum")
    out: Tensor = plan.run()
    return out


def _with_loops(layer: Any, edge_index: Tensor, features: Any, loops: int) -> Tensor | None:
    """[E or more, K]: the features of the edges, and of the self loops that are added."""
    if features is None or layer.lin_edge is None:
        return None
    given: Tensor = features.view(-1, 1) if features.dim() == 1 else features
    if layer.fill_value == "mean":
        of_loops = _means(edge_index, given, loops)
    else:
        of_loops = given.new_full((loops, given.size(1)), layer.fill_value)
    return with_loops(edge_index, given, of_loops)


def _means(edge_index: Tensor, features: Tensor, nodes: int) -> Tensor:
    """[N, K]: for every node the mean over its incoming edges that are no loops; 0 where there are none."""
    keep = (edge_index[0] != edge_index[1]).to(features.dtype)
    count = keep.new_zeros(nodes).index_add(0, edge_index[1], keep)
    kept = torch.where(keep.unsqueeze(1) != 0, features, 0)
    total = features.new_zeros(nodes, features.size(1)).index_add(0, edge_index[1], kept)
    return total / count.clamp(min=1).unsqueeze(1)
