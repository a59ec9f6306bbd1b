"""GATConv and GATv2Conv in one fused kernel: scores, softmax and weighted sum, with no tensor per edge.

The layers' modules run unchanged, with their hooks, except the two that would compute a value for each edge:
the leaky relu and the dropout of attention. They are replaced only if they are plain modules without hooks,
so that nothing observable differs. The layer's dropout module, called on ones, draws the mask, so the same
seed drops the same weights.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from onehop.graph import Graph
from onehop.integrations.dgl.operands import check_tensor, need, record, structure_for
from onehop.integrations.rows import Function
from onehop.ops import gat, gatv2

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)


def _fused(
    names: tuple[str, ...],
    operation: str,
    run: Function,
    theirs: Function,
    layer: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Runs a layer's ``forward`` as fused attention; ``names`` are the names of its parameters.

    Raises:
        Leave: The layer runs DGL's own code.
    """
    arguments = dict(zip(names, args, strict=False)) | kwargs
    need(len(args) + len(kwargs) == len(arguments) and {"graph", "feat"} <= arguments.keys() <= set(names))
    g, feat, with_weights = arguments["graph"], arguments["feat"], bool(arguments.get("get_attention"))
    need(
        arguments.get("edge_weight") is None,
        "its attention is multiplied by edge weights, so its steps run one by one",
    )
    index = getattr(g, "_graph", None)
    need(index is not None)
    structure = structure_for(index)
    graph = structure.graph
    need(
        graph.num_edges and (layer._allow_zero_in_degree or not structure.has_empty),
        "its graph has destinations without edges, of which DGL is left to speak",
    )
    ends = feat if isinstance(feat, tuple) else (feat,)
    need(1 <= len(ends) <= 2)
    for x, rows in zip(ends, (graph.num_src, graph.num_dst), strict=False):
        check_tensor("features", x, rows, structure)
        need(x.dim() == 2, "the features have more than two dimensions")
        need(all(parameter.dtype is x.dtype for parameter in layer.parameters()))
    _check_modules(layer)
    form = f"{type(layer).__name__}, fused{', with weights' if with_weights else ''}"
    record(structure, ends[0], form, "sum", operation, layer._out_feats, layer._num_heads)
    out, weights = run(layer, g, graph, feat, with_weights)
    return out if weights is None else (out, weights.unsqueeze(-1))


def _check_modules(layer: Any) -> None:
    """Raises :class:`Leave` if a module between the layer's fused steps is not a plain one."""
    for name, kind in (("leaky_relu", nn.LeakyReLU), ("attn_drop", nn.Dropout)):
        module = getattr(layer, name)
        plain = type(module) is kind and "forward" not in module.__dict__
        need(plain, f"its {name} is not torch's {kind.__name__}")
        need(not any(module.__dict__[hooks] for hooks in _HOOKS), f"hooks are registered on its {name}")
    hooked = any(getattr(torch_module, hooks) for hooks in _GLOBAL_HOOKS)
    need(not hooked, "global module hooks are registered")


def _gat(layer: Any, g: Any, graph: Graph, feat: Any, with_weights: bool) -> tuple[Tensor, Tensor | None]:
    apart = isinstance(feat, tuple) and hasattr(layer, "fc_src")
    steps = (layer.fc_src, layer.fc_dst) if apart else (layer.fc, layer.fc)
    source, target, from_dst = _ends(layer, g, graph, feat, *steps)
    of_source, of_target = (source * layer.attn_l).sum(-1), (target * layer.attn_r).sum(-1)
    operands = source, of_source, of_target
    out, weights = _attend(layer, graph, gat, operands, with_weights)
    out = _with_residual(layer, out, from_dst)
    if layer.has_explicit_bias:
        out = out + layer.bias.view(1, layer._num_heads, layer._out_feats)
    return (layer.activation(out) if layer.activation else out), weights


def _gatv2(layer: Any, g: Any, graph: Graph, feat: Any, with_weights: bool) -> tuple[Tensor, Tensor | None]:
    shared = layer.share_weights and not isinstance(feat, tuple)
    steps = layer.fc_src, layer.fc_src if shared else layer.fc_dst
    source, target, from_dst = _ends(layer, g, graph, feat, *steps)
    operands = source, target, layer.attn[0]
    out, weights = _attend(layer, graph, gatv2, operands, with_weights)
    out = _with_residual(layer, out, from_dst)
    return (layer.activation(out) if layer.activation else out), weights


def _ends(
    layer: Any, g: Any, graph: Graph, feat: Any, of_source: Any, of_target: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return projected sources and destinations, [n, heads, features] each, and the destinations' features.

    The linear step runs once if sources and destinations share it and their features.
    """
    shape = (-1, layer._num_heads, layer._out_feats)
    if isinstance(feat, tuple):
        from_src, from_dst = layer.feat_drop(feat[0]), layer.feat_drop(feat[1])
        return of_source(from_src).view(shape), of_target(from_dst).view(shape), from_dst
    from_dst = layer.feat_drop(feat)
    source = of_source(from_dst).view(shape)
    target = source if of_target is of_source else of_target(from_dst).view(shape)
    if g.is_block:
        target, from_dst = target[: graph.num_dst], from_dst[: graph.num_dst]
    return source, target, from_dst


def _attend(
    layer: Any, graph: Graph, operator: Function, operands: tuple[Tensor, ...], with_weights: bool
) -> tuple[Tensor, Tensor | None]:
    mask = None
    if layer.attn_drop.training and layer.attn_drop.p != 0:
        # The factors of the layer's dropout, [E, H].
        ones = operands[0].new_ones(graph.num_edges, layer._num_heads, 1)
        mask = layer.attn_drop(ones).squeeze(-1).detach()
    result = operator(
        graph,
        *operands,
        layer.leaky_relu.negative_slope,
        edge_mask=mask,
        return_attention_weights=with_weights,
    )
    return result if with_weights else (result, None)


def _with_residual(layer: Any, out: Tensor, from_dst: Tensor) -> Tensor:
    if layer.res_fc is None:
        return out
    residual: Tensor = layer.res_fc(from_dst).view(out.size(0), -1, layer._out_feats)
    return out + residual


FUSED = {
    "GATConv": partial(_fused, ("graph", "feat", "edge_weight", "get_attention"), "gat", _gat),
    "GATv2Conv": partial(_fused, ("graph", "feat", "get_attention"), "gatv2", _gatv2),
}
"""The ``forward`` functions of DGL's layers that are fused, by class name."""
