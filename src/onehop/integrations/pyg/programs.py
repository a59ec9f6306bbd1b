"""Patched layers in programs of ``torch.compile`` and ``torch.export``.

The functions here replace PyG's while a program is traced. The conditions on layers are the same as in eager
mode (:mod:`.layer`); the rules' specs admit operands, and the rules make plans. Only the edges differ
(:mod:`.edges.program`): their graph is looked up when the program runs.

Facts that depend only on a class are constants of the program. The reason why a layer has no fast path is
returned, not raised as :class:`Leave`, because torch 2.6 traces no exception of this package.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch_geometric.nn.dense import Linear

from onehop.backends import backend_for
from onehop.compiler.modules import MODULE_HOOKS, itself
from onehop.integrations import reports, session
from onehop.integrations.pyg.aggregation import Aggregation
from onehop.integrations.pyg.call import Call
from onehop.integrations.pyg.conditions import HOOKED, OVERRIDES, layer_reason, reduction_of, watched
from onehop.integrations.pyg.edges.program import EdgesInProgram, ProgramEdges, with_loops
from onehop.integrations.pyg.known import ATTENTION, classes_returning_weights, edge_updates
from onehop.integrations.pyg.layer import block_class_reason, rendering_reason, rule_of, softmax_of
from onehop.integrations.pyg.leave import LEFT_TO_PYG, OTHER_OPERANDS, OWN_PRODUCT, TRACED, Leave, need
from onehop.integrations.pyg.pending import Pending
from onehop.integrations.pyg.rules.table import TABLE
from onehop.integrations.rows import Function, is_own, replaced
from onehop.ops.contexts import context_reason

_F = TypeVar("_F", bound=Function)
# torch stores a string constant directly, so an empty string represents None. The cast is needed because
# torch's decorator has no type annotations.
_constant = cast(Callable[[_F], _F], torch._dynamo.assume_constant_result)

# The types of tensors while torch.compile or torch.export traces.
_PLAIN = (Tensor, *TRACED)
_INTEGERS = (torch.int64, torch.int32)
# A tuple and not a union, because torch 2.6 does not trace unions.
_NUMBERS = (int, float)
_PAIR = 2

_ONE_BY_ONE = "it is in a compiled program, and a simulated machine runs layers outside programs alone"
_NOT_TRACED = "it is in a compiled program, and onehop's operators there do not compute its messages"
_ASKED = "it is in a compiled program, and its attention weights are returned"
_UNUSUAL = "it is in a compiled program, and flow or node_dim is not as usual"
_OWN_LINEAR = "the edge features go through a layer other than PyG's Linear without bias"


# Conditions


def reason(call: Call) -> str | None:
    """Return why PyG's code is traced for a call with any operands; None if onehop's may be traced.

    If the result is None, ``call.reduce`` is set to the layer's reduction.
    """
    now, layer, edge_index = session.now, call.layer, call.edge_index
    kind = type(layer)
    if not now.pyg:
        return "the patch is not in place"
    if now.machine:
        return _ONE_BY_ONE
    # The functions are arguments so that torch guards on them, and recompiles the program if one is replaced.
    sentence: str | None = (
        context_reason(traced=True)
        or _class_sentence(kind, now.layers, kind.message, kind.aggregate, kind.update)
        or layer_reason(layer, False, traced=True)
    )
    if not sentence:
        call.reduce, sentence = reduction_of(layer, traced=True)
    if sentence:
        return sentence
    if type(edge_index) not in _PLAIN:
        return "edge_index is not a plain tensor, and it is in a compiled program"
    if edge_index.layout is not torch.strided:
        return OWN_PRODUCT
    fits = edge_index.dtype in _INTEGERS and edge_index.dim() == _PAIR and edge_index.size(0) == _PAIR
    return None if fits else LEFT_TO_PYG


def forward_reason(call: Call) -> str | None:
    """Like :func:`reason`, for a ``forward`` that does not call ``propagate``, or with other edges."""
    sentence, layer = reason(call), call.layer
    if sentence is None and (_propagates_itself(type(layer)) or watched(layer, ("propagate",), ())):
        return "its propagate is its own"
    return sentence


@_constant
def _class_sentence(kind: Any, *_: Any) -> str:
    """Return why a class has no fast path; empty if it has one."""
    try:
        rule = rule_of(kind)
    except Leave as why:
        # In eager mode, such a layer's message would run in blocks; in a program it cannot.
        blocks = block_class_reason(kind) is None
        return f"{why.sentence}, and no blocks run in compiled programs" if blocks else why.sentence
    softmax = softmax_of(kind) if rule.attends else None
    if softmax is not None and not is_own(softmax):
        return f"another library replaced {kind.message.__module__}.softmax"
    theirs = replaced(kind.propagate)
    return "" if theirs is None else rendering_reason(kind, theirs) or ""


@_constant
def _propagates_itself(kind: Any) -> bool:
    """Return whether a class has a ``propagate`` that onehop has not replaced."""
    return replaced(kind.propagate) is None


@_constant
def _rule_name(kind: Any) -> str:
    """Return the name, in the table of rules, of a class's rule; the class must have one."""
    rule = rule_of(kind)
    return next(name for name, each in TABLE.items() if each is rule)


@_constant
def _attention_kind(kind: Any) -> str:
    """Return the kind of scores of an attention class; empty for other classes."""
    rule = rule_of(kind)
    if rule is TABLE["TransformerConv"]:
        return ATTENTION["TransformerConv"]
    pends = rule is TABLE["GATConv"] and replaced(kind.edge_updater) is not None
    return edge_updates().get(kind.edge_update, "") if pends else ""


@_constant
def _has_own_reasons(kind: Any) -> bool:
    """Return whether the ``forward`` of a class reports itself why its attention runs in PyG."""
    return kind.forward in [each.forward for each in classes_returning_weights()]


def refuse(layer: Any, sentence: str) -> None:
    """Reports that PyG's code is traced for a layer, in one log line for each class and sentence."""
    if torch.compiler.is_compiling():
        _log(type(layer), sentence)
    else:
        reports.refuse(layer, sentence)


@_constant
def _log(kind: Any, sentence: str) -> str:
    reports.log(kind, sentence)
    return ""


# Plans


def planned(call: Call, edges: ProgramEdges) -> Any:
    """Return the plan that a layer's rule makes of a call for which :func:`reason` is None.

    The plan is recorded for ``explain``, unless a program is being traced.

    Raises:
        Leave: torch has to trace PyG's code.
    """
    plan = call.lowered(TABLE[_rule_name(type(call.layer))], edges, session.now.backend)
    if not torch.compiler.is_compiling():
        form = plan.messages if isinstance(plan, Aggregation) else plan.form
        backend = backend_for(plan.x.device, plan.x.dtype, session.now.backend).name
        reports.record(reports.Call(call.layer, None, form, plan.reduce, backend, "in a compiled program"))
    return plan


def propagate(
    theirs: Function, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs ``propagate`` on onehop's operators, or runs PyG's code and reports why."""
    call = Call(itself(layer), None, edge_index, kwargs, args)
    if type(edge_index) is EdgesInProgram:
        return _attended(call)
    sentence = reason(call) or _message_reason(call)
    if sentence is None:
        try:
            return planned(call, ProgramEdges(call.layer, edge_index, kwargs.get("size"))).computed()
        except Leave as why:
            sentence = why.sentence
    if sentence:
        refuse(call.layer, sentence)
    return theirs(layer, edge_index, *args, **kwargs)


def _message_reason(call: Call) -> str | None:
    """Return why the layer's rule does not run this message; None if it does.

    The result is empty if the layer's ``forward`` has already reported the reason.
    """
    kind = type(call.layer)
    rule = TABLE[_rule_name(kind)]
    if rule.attends:
        return "" if _has_own_reasons(kind) else _NOT_TRACED
    return OTHER_OPERANDS if call.args or set(call.operands) - {"size"} != set(rule.operands) else None


# Attention: PyG's ``forward`` around one operator


def attention_forward(
    theirs: Function, place: int, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs the ``forward`` of attention layers; if possible, ``propagate`` adds the self loops.

    Args:
        theirs: PyG's ``forward``.
        place: The position of the argument that requests the attention weights.
        layer: The layer.
        args: The positional arguments: features, ``edge_index``, edge features and others.
        kwargs: The keyword arguments.
    """
    asked = _argument(args, kwargs, place, "return_attention_weights")
    edge_index = _argument(args, kwargs, 1, "edge_index")
    features = _argument(args, kwargs, 2, "edge_attr")
    call = Call(itself(layer), None, edge_index, {})
    sentence = forward_reason(call) or _attention_reason(call, features, asked)
    if sentence is None:
        edges = EdgesInProgram(edge_index, _attention_kind(type(call.layer)))
        try:
            if len(args) > 1:
                return theirs(layer, args[0], edges, *args[2:], **kwargs)
            return theirs(layer, *args, **{**kwargs, "edge_index": edges})
        except Leave as why:  # raised by the rule, which gets its operands from PyG's forward
            sentence = why.sentence
    refuse(call.layer, sentence)
    return theirs(layer, *args, **kwargs)


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


def _attention_reason(call: Call, features: Any, asked: Any) -> str | None:
    """Return why PyG's ``forward`` is traced unchanged; None if the rule decides."""
    layer, kind = call.layer, _attention_kind(type(call.layer))
    if asked is not None:
        return _ASKED
    if not kind:
        return _NOT_TRACED
    if torch.is_autocast_enabled(call.edge_index.device.type):
        return "autocast decides on the dtypes of its scores"
    if layer.flow != "source_to_target" or layer.node_dim != 0:
        return _UNUSUAL
    if call.reduce != "sum":
        return "its aggregation is not a sum"
    hooks = ("_edge_update_forward_pre_hooks", "_edge_update_forward_hooks")
    scores = watched(layer, ("edge_update", "edge_updater"), hooks)
    if any(map(scores.get, hooks)):
        return HOOKED
    if len(scores) > len(hooks):
        return f"{OVERRIDES} edge_update"
    linear = itself(layer.lin_edge)
    if features is None or linear is None:
        return None
    if type(linear) is not Linear or linear.bias is not None:
        return _OWN_LINEAR
    # With loops, the linear step gets other rows than in PyG, which its hooks or forward would see.
    if any(watched(linear, ("forward",), MODULE_HOOKS).values()):
        return "hooks are registered on a module in it"
    value = layer.fill_value if kind != "dot" and layer.add_self_loops else "mean"
    if value != "mean" and not isinstance(value, _NUMBERS):
        return f"it is in a compiled program, and its self loops are filled by {value!r}"
    return None


def edge_updater(
    theirs: Function, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs ``edge_updater``, or postpones it if ``propagate`` runs on onehop's operators."""
    if type(edge_index) is EdgesInProgram:
        return Pending(edge_index.kind, theirs, layer, edge_index, kwargs, False)
    return theirs(layer, edge_index, *args, **kwargs)


def _attended(call: Call) -> Tensor:
    """Return the aggregated messages of a layer whose ``forward`` got an :class:`EdgesInProgram`.

    Raises:
        Leave: The operands do not fit.
    """
    layer, edge_index, operands = call.layer, call.edge_index, call.operands
    size, loops = operands.get("size"), 0
    if edge_index.kind != "dot" and layer.add_self_loops:
        source, target = operands["x"]
        rows = (source.size(0), source.size(0) if target is None else target.size(0))
        loops = min(rows if size is None else size)
        pending = operands["alpha"]
        features = _with_loops(layer, edge_index.edge_index, pending.operands["edge_attr"], loops)
        pending.operands = {**pending.operands, "edge_attr": features}
    call.reduce = "sum"  # Only layers with the reduction "sum" get such edges.
    out: Tensor = planned(call, ProgramEdges(layer, edge_index, size, loops)).run()
    return out


def _with_loops(layer: Any, edge_index: Tensor, features: Any, loops: int) -> Tensor | None:
    """Return the features of the edges, and of the self loops that are added, [E or more, K]."""
    if features is None or layer.lin_edge is None:
        return None
    rows: Tensor = features.view(-1, 1) if features.dim() == 1 else features
    need(rows.dim() == _PAIR and rows.size(0) == edge_index.size(1))
    if layer.fill_value == "mean":
        of_loops = _means(edge_index, rows, loops)
    else:
        of_loops = rows.new_full((loops, rows.size(1)), layer.fill_value)
    return with_loops(edge_index, rows, of_loops)


def _means(edge_index: Tensor, features: Tensor, nodes: int) -> Tensor:
    """Return, for each node, the mean over its incoming edges without self loops, [N, K]; 0 without any."""
    counts = (edge_index[0] != edge_index[1]).to(features.dtype)
    count = counts.new_zeros(nodes).index_add(0, edge_index[1], counts)
    rows = torch.where(counts.unsqueeze(1) != 0, features, 0)
    total = features.new_zeros(nodes, features.size(1)).index_add(0, edge_index[1], rows)
    return total / count.clamp(min=1).unsqueeze(1)
