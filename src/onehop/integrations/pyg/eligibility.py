"""The conditions of the fast path that concern a layer: each comes with the sentence that says why not.

Nothing here looks at the data. What depends on the class alone is decided once for a class, and decided anew
when somebody replaces one of its functions.
"""

from collections.abc import Callable
from typing import Any

from torch.nn.modules import module as torch_module
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation
from torch_geometric.nn.conv.message_passing import FUSE_AGGRS

from onehop.integrations.pyg.recognise import Attention, Form, message_forms

# The reduction that an aggregation module computes, by its exact class.
REDUCTIONS: dict[type, str] = {
    SumAggregation: "sum",
    MeanAggregation: "mean",
    MaxAggregation: "max",
    MinAggregation: "min",
}

# Functions that PyG calls on the way and that must be its own.
_OURS_ASSUMES = ("aggregate", "update", "_check_input", "_set_size", "_index_select", "_index_select_safe")
_INSTANCE_OVERRIDES = ("message", *_OURS_ASSUMES, "collect", "get_attention")
_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
)
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)

_LEFT_OUT = "patch(only=...) leaves its class out"

_forms: dict[Callable[..., Any], Form | Attention] = {}
_selection: frozenset[str] | None = None


def select(only: frozenset[str] | None) -> None:
    """Sets the layers that the patch is for, by class name; None means all."""
    global _selection
    _selection = only
    if not _forms:
        _forms.update(message_forms())


class ClassRecord:
    """What is known of a class of layers.

    Attributes:
        form: What its messages are; None if it has no fast path.
        reason: Why it has none.
        block_reason: Why its messages cannot run in blocks; None if the class is not in the way.
        fuses: Whether the class has a fused path of PyG's own.
    """

    __slots__ = ("_functions", "_selection", "block_reason", "form", "fuses", "reason")

    def __init__(self, kind: Any) -> None:
        self._functions = _functions(kind)
        self._selection = _selection
        self.fuses = kind.message_and_aggregate is not MessagePassing.message_and_aggregate
        self.form: Form | Attention | None = None
        self.reason: str | None = None
        found = _class_form(kind)
        if isinstance(found, str):
            self.reason = found
        else:
            self.form = found
        self.block_reason = _block_reason(kind)

    def holds(self, kind: type) -> bool:
        """Whether the class still has the functions that were looked at."""
        return self._functions == _functions(kind) and self._selection is _selection


def _functions(kind: Any) -> tuple[Any, ...]:
    return (
        kind.message,
        kind.aggregate,
        kind.update,
        kind._check_input,
        kind._set_size,
        kind._index_select,
        kind._index_select_safe,
        getattr(kind, "get_attention", None),
    )


def _class_form(kind: Any) -> Form | Attention | str:
    if _selection is not None and _selection.isdisjoint(base.__name__ for base in kind.__mro__):
        return _LEFT_OUT
    form = _forms.get(kind.message)
    if form is None:
        return "its message function is its own, and onehop knows only those of PyG"
    for name in _OURS_ASSUMES:
        if getattr(kind, name) is not getattr(MessagePassing, name):
            return f"its class overrides {name}"
    if isinstance(form, Attention):
        owner = next(base for base in kind.__mro__ if vars(base).get("message") is kind.message)
        for name in form.needs:
            if getattr(kind, name) is not getattr(owner, name):
                return f"its class overrides {name}"
    return form


def _block_reason(kind: Any) -> str | None:
    if _selection is not None and _selection.isdisjoint(base.__name__ for base in kind.__mro__):
        return _LEFT_OUT
    for name in _OURS_ASSUMES:
        # An update of its own runs as it is, on the reduced messages.
        if name != "update" and getattr(kind, name) is not getattr(MessagePassing, name):
            return f"its class overrides {name}"
    return None


def layer_reason(layer: Any, record: ClassRecord) -> str | None:
    """Why this layer, as it is set up now, has no fast path; None if it has."""
    return record.reason if record.reason is not None else state_reason(layer, record)


def state_reason(layer: Any, record: ClassRecord) -> str | None:
    """The part of :func:`layer_reason` that lies with the layer and not with its class."""
    state = layer.__dict__
    if state.get("_explain"):
        return "an explainer is at work on it"
    if state.get("_decomposed_layers", 1) != 1:
        return "decomposed_layers is not 1"
    for name in _INSTANCE_OVERRIDES:
        if name in state:
            return f"this instance overrides {name}"
    for name in _HOOKS:
        if state.get(name):
            return "message passing hooks are registered on it"
    if record.fuses and not state["fuse"] and isinstance(state["aggr"], str) and state["aggr"] in FUSE_AGGRS:
        return "its fuse switch is off"
    return None


def reduction(layer: Any) -> tuple[str, str | None]:
    """The reduction of the layer's aggregation module; or, in the second place, why it has no fast path."""
    module = layer.__dict__["_modules"].get("aggr_module")
    reduce = REDUCTIONS.get(type(module))
    if reduce is None:
        return "", f"its aggregation is {type(module).__name__}, not sum, mean, max or min"
    state = module.__dict__
    for name in MODULE_HOOKS:
        if state[name]:
            return "", "hooks are registered on its aggregation module"
    if "forward" in state or "reduce" in state:
        return "", "its aggregation module is overridden"
    if global_hooks():
        return "", "global module hooks are registered"
    return reduce, None


def global_hooks() -> bool:
    """Whether torch has hooks for every module."""
    return any(getattr(torch_module, name) for name in _GLOBAL_HOOKS)
