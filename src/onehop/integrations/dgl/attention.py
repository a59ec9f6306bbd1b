"""GATConv and GATv2Conv in one fused kernel: scores, softmax and weighted sum, nothing kept for each edge.

The layers' own modules run as they are, hooks included, all but the two that would see a number, or a row,
for each edge: the leaky relu and the dropout of attention. Where those two are plain nothing observable
differs: the dropout's mask is drawn by the module itself, from ones, so the same seed drops the same weights.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from onehop.backends import backend_for
from onehop.graph import Graph
from onehop.integrations import reports, tuning
from onehop.integrations.dgl.graphs import Structure
from onehop.integrations.dgl.operands import LEFT_TO_DGL, structure_for, tensor_reason
from onehop.ops import gat, gatv2

Function = Callable[..., Any]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)


def fused_gat(theirs: Function, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """GATConv's ``forward``: ``(graph, feat, edge_weight=None, get_attention=False)``."""
    return _fused(theirs, layer, args, kwargs, ("graph", "feat", "edge_weight", "get_attention"), "gat")


def fused_gatv2(theirs: Function, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """GATv2Conv's ``forward``: ``(graph, feat, get_attention=False)``."""
    return _fused(theirs, layer, args, kwargs, ("graph", "feat", "get_attention"), "gatv2")


def _fused(
    theirs: Function,
    layer: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: tuple[str, ...],
    operation: str,
) -> Any:
    given = dict(zip(names, args, strict=False)) | kwargs
    structure = _structure(layer, given, len(args) + len(kwargs), names)
    if isinstance(structure, str):
        reports.refuse(layer, structure)
        return theirs(layer, *args, **kwargs)
    asked = bool(given.get("get_attention"))
    if reports.recording():
        dtype = next(layer.parameters()).dtype
        backend = backend_for(structure.device, dtype)
        size = layer._out_feats, dtype, structure.device, layer._num_heads
        plan = tuning.plan_text(backend, structure.graph, operation, *size)
        form = f"{type(layer).__name__}, fused{', with weights' if asked else ''}"
        reports.record(reports.Call(layer, None, form, "sum", backend.name, plan))
    out, weights = _RUNS[operation](layer, given["graph"], structure.graph, given["feat"], asked)
    return out if weights is None else (out, weights.unsqueeze(-1))


def _structure(layer: Any, given: dict[str, Any], number: int, names: tuple[str, ...]) -> Structure | str:
    """The graph's structure, or why the layer goes DGL's own way."""
    if number != len(given) or not given.keys() <= set(names) or not {"graph", "feat"} <= given.keys():
        return LEFT_TO_DGL
    if given.get("edge_weight") is not None:
        return "its attention is multiplied by edge weights, so its steps run one by one"
    index = getattr(given["graph"], "_graph", None)
    if index is None:
        return LEFT_TO_DGL
    structure = structure_for(index)
    if isinstance(structure, str):
        return structure
    if structure.graph.num_edges == 0 or (not layer._allow_zero_in_degree and structure.has_empty):
        return "its graph has destinations without edges, of which DGL is left to speak"
    return _features_reason(layer, given["feat"], structure) or _modules_reason(layer) or structure


def _features_reason(layer: Any, feat: Any, structure: Structure) -> str | None:
    graph = structure.graph
    ends = feat if isinstance(feat, tuple) else (feat,)
    if len(ends) > 2 or not ends:
        return LEFT_TO_DGL
    for x, rows in zip(ends, (graph.num_src, graph.num_dst), strict=False):
        reason = tensor_reason("features", x, rows, structure)
        if reason is not None:
            return reason
        if x.dim() != 2:
            return "the features have more than two dimensions"
        if any(parameter.dtype is not x.dtype for parameter in layer.parameters()):
            return LEFT_TO_DGL
    return None


def _modules_reason(layer: Any) -> str | None:
    for name, kind in (("leaky_relu", nn.LeakyReLU), ("attn_drop", nn.Dropout)):
        module = getattr(layer, name)
        if type(module) is not kind or "forward" in module.__dict__:
            return f"its {name} is not torch's {kind.__name__}"
        if any(module.__dict__[hooks] for hooks in _HOOKS):
            return f"hooks are registered on its {name}"
    if any(getattr(torch_module, hooks) for hooks in _GLOBAL_HOOKS):
        return "global module hooks are registered"
    return None


def _gat(layer: Any, g: Any, graph: Graph, feat: Any, asked: bool) -> tuple[Tensor, Tensor | None]:
    shape = (-1, layer._num_heads, layer._out_feats)
    if isinstance(feat, tuple):
        from_src, from_dst = layer.feat_drop(feat[0]), layer.feat_drop(feat[1])
        shared = not hasattr(layer, "fc_src")
        source = (layer.fc if shared else layer.fc_src)(from_src).view(shape)
        target = (layer.fc if shared else layer.fc_dst)(from_dst).view(shape)
    else:
        from_dst = layer.feat_drop(feat)
        source = target = layer.fc(from_dst).view(shape)
        if g.is_block:
            target, from_dst = source[: graph.num_dst], from_dst[: graph.num_dst]
    of_source, of_target = (source * layer.attn_l).sum(-1), (target * layer.attn_r).sum(-1)
    slope, mask = layer.leaky_relu.negative_slope, _drawn(layer, graph, of_source)
    weights = None
    if asked:
        out, weights = gat(
            graph, source, of_source, of_target, slope, edge_mask=mask, return_attention_weights=True
        )
    else:
        out = gat(graph, source, of_source, of_target, slope, edge_mask=mask)
    if layer.res_fc is not None:
        out = out + layer.res_fc(from_dst).view(graph.num_dst, -1, layer._out_feats)
    if layer.has_explicit_bias:
        out = out + layer.bias.view(1, *shape[1:])
    return (layer.activation(out) if layer.activation else out), weights


def _gatv2(layer: Any, g: Any, graph: Graph, feat: Any, asked: bool) -> tuple[Tensor, Tensor | None]:
    shape = (-1, layer._num_heads, layer._out_feats)
    if isinstance(feat, tuple):
        from_src, from_dst = layer.feat_drop(feat[0]), layer.feat_drop(feat[1])
        source, target = layer.fc_src(from_src).view(shape), layer.fc_dst(from_dst).view(shape)
    else:
        from_dst = layer.feat_drop(feat)
        source = target = layer.fc_src(from_dst).view(shape)
        if not layer.share_weights:
            target = layer.fc_dst(from_dst).view(shape)
        if g.is_block:
            target, from_dst = target[: graph.num_dst], from_dst[: graph.num_dst]
    slope, mask = layer.leaky_relu.negative_slope, _drawn(layer, graph, source)
    weights = None
    if asked:
        out, weights = gatv2(
            graph, source, target, layer.attn[0], slope, edge_mask=mask, return_attention_weights=True
        )
    else:
        out = gatv2(graph, source, target, layer.attn[0], slope, edge_mask=mask)
    if layer.res_fc is not None:
        out = out + layer.res_fc(from_dst).view(graph.num_dst, -1, layer._out_feats)
    return (layer.activation(out) if layer.activation else out), weights


def _drawn(layer: Any, graph: Graph, like: Tensor) -> Tensor | None:
    """[E, H]: the factors of the layer's dropout; None where it drops nothing."""
    if not layer.attn_drop.training or layer.attn_drop.p == 0:
        return None
    mask: Tensor = layer.attn_drop(like.new_ones(graph.num_edges, layer._num_heads, 1)).squeeze(-1)
    return mask.detach()


_RUNS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {"gat": _gat, "gatv2": _gatv2}
