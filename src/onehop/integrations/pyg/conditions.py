"""Conditions under which a layer of PyG runs PyG's own code, each with the sentence that says so, in order.

A layer aggregates in one step (the first tier) unless one of these holds, from the top of the page down:

1. the context of the call (:func:`onehop.ops.contexts.context_reason`);
2. the size of its graph: :func:`onehop.integrations.pyg.sizes.is_too_small`;
3. its class: :class:`ClassRecord`, decided once, until somebody replaces a function of the class;
4. the layer as it is set up now: :func:`layer_reason`;
5. its aggregation: :func:`reduction_of`;
6. what ``propagate`` gets: its edges, features, weight, and where they are.

Layers whose message or aggregation alone is in the way run in blocks (the second tier) unless their class,
:func:`layer_reason`, :func:`module_reason` or the trace of the message is against it
(:mod:`onehop.integrations.pyg.rowwise`). Attention checks 1 to 5, and then its operands
(:mod:`onehop.integrations.pyg.attention`).

Nothing here reads the data. Whatever PyG would complain about is refused without a word of our own, so that
PyG's error appears.
"""

import inspect
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules import module as torch_module
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation
from torch_geometric.nn.conv.message_passing import FUSE_AGGRS

from onehop.backends import refusal
from onehop.compiler.modules import MODULE_HOOKS, global_hooks, modules_reason
from onehop.compiler.traces import Traces
from onehop.integrations import session
from onehop.integrations.pyg.classes import (
    PLAIN_STEPS,
    STEPS,
    Propagate,
    block_class_reason,
    class_reason,
    is_of_pyg,
    is_plain,
    operands_of,
    rendering_reason,
)
from onehop.integrations.pyg.recognise import AttentionForm, Form
from onehop.integrations.pyg.steps import Arguments, arguments_of
from onehop.ops.contexts import WRAPPED, in_older_vmap, is_wrapped, wraps

LEFT_TO_PYG = "PyG is left to report what does not fit"
OUT_OF_RANGE = "a node number is out of range, or there are too many nodes"
VALUES_ELSEWHERE = (
    "edge_index is a sparse matrix, whose values PyG's plain propagate passes as other arguments too"
)
OTHER_OPERANDS = "propagate gets other operands than the message needs"
TOO_SMALL = "its graph has so few edges that PyG's own code is as fast"
FITS_CACHE = "its message is not compiled, and fits in the cache, where PyG's own code is as fast as blocks"

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# The reduction that an aggregation module computes, by its exact class.
REDUCTIONS: dict[type, str] = {
    SumAggregation: "sum",
    MeanAggregation: "mean",
    MaxAggregation: "max",
    MinAggregation: "min",
}

_functions = attrgetter("message", *STEPS)
_INSTANCE_OVERRIDES = ("message", *STEPS, *PLAIN_STEPS, "collect", "get_attention")
_MESSAGE_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
)
_module_hooks = itemgetter(*MODULE_HOOKS)
# Attributes of a layer and its aggregation on which it depends how a message is reduced.
_READ_BY_TASKS = ("node_dim", "aggr_module", "t", "learn", "semi_grad")


# The class


class ClassRecord:
    """Facts about a class of layers.

    Attributes:
        form: What its messages are; None if the first tier does not know them.
        reason: Why the first tier does not.
        block_reason: Why its messages cannot run in blocks; None if the class is not in the way.
        fuses: Whether the class has a fused path of PyG's own.
        attends: Messages are weighed by attention.
        compiles: Whether they can be compiled where the first tier does not take them, though it knows them.
        plain: Whether its ``propagate`` is PyG's plain one, and not one that was rendered.
        first: The operand of ``propagate`` with the sources' features; empty without a form.
        names: The operands that ``propagate`` gets, but for ``size``; of a plain one those of the form.
        arguments: The arguments of its message function, where PyG's steps may run without PyG's questions.
        message: The parameters of its message function.
        update: Those of its ``update`` after the first; None where that is PyG's, which takes no others.
        traces: What traces of messages of the class found out.
        selection: The layers that the patch takes, as it was when the class was looked at.
    """

    __slots__ = (
        "_functions",
        "_get_attention",
        "arguments",
        "attends",
        "block_reason",
        "compiles",
        "first",
        "form",
        "fuses",
        "message",
        "names",
        "plain",
        "reason",
        "selection",
        "traces",
        "update",
    )

    def __init__(self, kind: Any, theirs: Propagate) -> None:
        self._functions: Any = _functions(kind)
        self._get_attention = getattr(kind, "get_attention", None)
        self.selection = session.now.layers
        self.fuses = kind.message_and_aggregate is not MessagePassing.message_and_aggregate
        self.plain = is_plain(theirs)
        operands = None if self.plain else operands_of(theirs)
        found, misfit = class_reason(kind), rendering_reason(kind, theirs)
        if not isinstance(found, str):
            found = misfit or (found if operands in (None, found.names) else OTHER_OPERANDS)
        self.form: Form | AttentionForm | None = None if isinstance(found, str) else found
        self.reason = found if isinstance(found, str) else None
        self.names = (operands or frozenset()) if self.form is None else self.form.names
        self.first = "" if self.form is None else self.form.first
        self.attends = isinstance(self.form, AttentionForm)
        self.compiles = isinstance(self.form, AttentionForm) and self.form.compiles
        self.block_reason = block_class_reason(kind) or misfit
        self.arguments: Arguments | None = None
        steps = self.form is not None or (self.block_reason is None and is_of_pyg(kind))
        # PyG's steps end with its own functions.
        ends = (kind.aggregate, kind.update) == (MessagePassing.aggregate, MessagePassing.update)
        if steps and ends and not self.plain:
            self.arguments = arguments_of(kind.message, self.names)
        self.message = _parameters(kind.message, 1)
        own = kind.update is not MessagePassing.update
        self.update = _parameters(kind.update, 2) if own else None
        self.traces = Traces((MessagePassing,), _READ_BY_TASKS)

    def holds(self, kind: Any) -> bool:
        """Return whether the functions of the class and the selection of the patch are those looked at."""
        return (
            self.selection is session.now.layers
            and self._functions == _functions(kind)
            and self._get_attention is getattr(kind, "get_attention", None)
        )


def _parameters(function: Any, after: int) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())[after:]


# The layer as it is now


def layer_reason(layer: Any, fuses: bool) -> str | None:
    """Return why this layer, as it is set up now, has no fast path, whatever its class; None if it has."""
    state = layer.__dict__
    if state.get("_explain"):
        return "an explainer is at work on it"
    if state.get("_decomposed_layers", 1) != 1:
        return "decomposed_layers is not 1"
    if not state.keys().isdisjoint(_INSTANCE_OVERRIDES):
        return f"this instance overrides {next(name for name in _INSTANCE_OVERRIDES if name in state)}"
    if any(map(state.get, _MESSAGE_HOOKS)):
        return "message passing hooks are registered on it"
    if fuses and not state["fuse"] and isinstance(state["aggr"], str) and state["aggr"] in FUSE_AGGRS:
        return "its fuse switch is off"
    return None


def reduction_of(layer: Any) -> tuple[str, str | None]:
    """The reduction of the layer's aggregation module; or, in the second place, why it has no fast path."""
    module = layer.__dict__["_modules"].get("aggr_module")
    reduce = REDUCTIONS.get(type(module))
    if reduce is None:
        return "", f"its aggregation is {type(module).__name__}, not sum, mean, max or min"
    state = module.__dict__
    if any(_module_hooks(state)):
        return "", "hooks are registered on its aggregation module"
    if "forward" in state or "reduce" in state:
        return "", "its aggregation module is overridden"
    if any(global_hooks(torch_module)):
        return "", "global module hooks are registered"
    return reduce, None


def module_reason(layer: Any) -> str | None:
    """Return why the modules in a layer keep it from running in blocks; None if they do not."""
    return modules_reason(module for module in layer.modules() if module is not layer)


def has_hooks(module: Any) -> bool:
    """Return whether a module has hooks of its own."""
    return any(_module_hooks(module.__dict__))


# The operands of one call


def edges_of(layer: Any, edge_index: Any, size: Any, fuses: bool) -> tuple[Tensor, list[int | None]] | str:
    """The [2, E] tensor of the edges and the sizes that the caller gave; or why they have no fast path."""
    if type(edge_index) is Tensor:
        data = edge_index
        if data.layout is not torch.strided:
            return "edge_index is a sparse matrix, for which PyG has its own code"
        if is_wrapped(data) or (in_older_vmap() and wraps(data)):
            return WRAPPED
        sizes: list[int | None]
        if size is None:
            sizes = [None, None]
        elif isinstance(size, tuple | list) and len(size) == 2:
            sizes = list(size)
        else:
            return LEFT_TO_PYG
    elif type(edge_index) is EdgeIndex:
        if fuses and layer.SUPPORTS_FUSED_EDGE_INDEX and edge_index.is_sorted_by_col:
            return "edge_index is an EdgeIndex, for which this layer has its own code"
        # What is written to an EdgeIndex does not raise the version of the tensor inside. One that was made
        # in inference mode has no version, and is never recognised.
        unwritten = edge_index.is_inference() or edge_index._version == 0
        data = edge_index.as_tensor() if unwritten else edge_index.as_tensor().clone()
        sizes = [edge_index.num_rows, edge_index.num_cols]
    else:
        return f"edge_index is of type {type(edge_index).__name__}"
    if (
        (data.dtype is not torch.int64 and data.dtype is not torch.int32)
        or data.dim() != 2
        or data.size(0) != 2
    ):
        return LEFT_TO_PYG
    return data, sizes


def source_of(layer: Any, operand: Any, sizes: list[int | None], forwards: bool) -> Tensor | str:
    """The features that are gathered; or why they have no fast path. Notes numbers of rows as PyG does."""
    dim = layer.node_dim
    if isinstance(operand, tuple | list):
        if len(operand) != 2:
            return LEFT_TO_PYG
        source, target = operand
        if not forwards and target is not source:
            return "bipartite features meet flow='target_to_source'"
        reason = features_reason(source, dim)
        if reason is not None:
            return reason
        if not fits(sizes, 0, source.size(dim)):
            return LEFT_TO_PYG
        if target is not None:
            if not isinstance(target, Tensor) or target.dim() < 2:
                return "the destinations' features are no matrix"
            if not fits(sizes, 1, target.size(dim)):
                return LEFT_TO_PYG
        return source  # type: ignore[no-any-return]
    reason = features_reason(operand, dim)
    if reason is not None:
        return reason
    if not fits(sizes, 0 if forwards else 1, operand.size(dim)):
        return LEFT_TO_PYG
    return operand  # type: ignore[no-any-return]


def features_reason(x: Any, node_dim: int) -> str | None:
    """Return why such features have no fast path on any device; None if they have."""
    if type(x) is not Tensor and type(x) is not Parameter:
        return f"the features are of type {type(x).__name__}"
    if x.dtype not in FLOATS:
        return "the features are not floating-point numbers of 16, 32 or 64 bits"
    if x.layout is not torch.strided:
        return "the features are sparse"
    if is_wrapped(x) or (in_older_vmap() and wraps(x)):
        return WRAPPED
    dims = x.dim()
    if not (dims == 2 and node_dim in (-2, 0)) and not (dims == 3 and node_dim == -2):
        return "node_dim is not the first of two dimensions, nor the middle one of three"
    return None


def weight_of(form: Form, kwargs: dict[str, Any], edges: int) -> tuple[Tensor | None, str | None]:
    """The weight, one number an edge, or None; in the second place, why it has no fast path."""
    weight = kwargs[form.weight] if form.weight is not None else None
    if weight is None:
        return None, "PyG is left to report the missing weight" if form.weight_required else None
    if type(weight) is not Tensor and type(weight) is not Parameter:
        return None, f"the edge weight is of type {type(weight).__name__}"
    if weight.dtype not in FLOATS or weight.layout is not torch.strided:
        return None, "the edge weight is not a dense floating-point tensor"
    if wraps(weight):
        return None, WRAPPED
    if weight.dim() == 2 and weight.size(1) == 1:
        weight = weight.squeeze(1)
    if weight.dim() != 1 or weight.size(0) != edges:
        return None, "the edge weight is not one number an edge"
    return weight, None


def difference_reason(
    layer: Any,
    subtrahend: Any,
    source: Tensor,
    reduce: str,
    sizes: list[int | None],
    forwards: bool,
) -> str | None:
    """Return why a message that subtracts the destinations' features has no fast path; None if it has."""
    reason = features_reason(subtrahend, layer.node_dim)
    if reason is not None:
        return reason
    if not fits(sizes, 1 if forwards else 0, subtrahend.size(layer.node_dim)):
        return LEFT_TO_PYG
    if source.dim() != 2 or subtrahend.shape[1:] != source.shape[1:] or subtrahend.dtype is not source.dtype:
        return "source and destination features differ in width or dtype, or have three dimensions"
    if reduce not in ("sum", "mean"):
        return "differences are reduced by sum and mean alone"
    return None


def placement_reason(backend: str, edges: Tensor, x: Tensor, *others: Tensor | None) -> str | None:
    """Return why nobody runs on operands where these are; None if the backend, or with no name any, does."""
    on_cpu = edges.is_cpu  # which is faster to ask than the device
    for each in (x, *others):
        if each is not None and (each.is_cpu is not on_cpu or not (on_cpu or each.device == edges.device)):
            return (
                f"edge_index is on {edges.device} and an operand on {each.device}; "
                f"PyG is left to report what does not fit"
            )
    return backend_reason(x, backend)


def backend_reason(x: Tensor, backend: str) -> str | None:
    """Return why nobody runs on features such as these; None if the backend of that name, or any, does."""
    if x.is_cpu and not backend:
        return None  # every dtype that has a fast path has one there
    reason = refusal(backend, x.device, x.dtype)
    return None if reason is None else f"features of {x.dtype} on {x.device} have no backend: {reason}"


def fits(sizes: list[int | None], dim: int, rows: int) -> bool:
    """Notes that dimension ``dim`` has ``rows`` rows; False if it is known to have another number."""
    known = sizes[dim]
    if known is None:
        sizes[dim] = rows
        return True
    return known == rows
