"""Conditions on a layer instance, for every class: in eager mode, and while a program is traced."""

from collections.abc import Sequence
from typing import Any

from torch.nn.modules import module as torch_module
from torch_geometric.nn.conv.message_passing import FUSE_AGGRS

from onehop.compiler.modules import MODULE_HOOKS, global_hooks, itself, modules_reason
from onehop.integrations.pyg.leave import EXPLAINED, Explained, Leave
from onehop.integrations.pyg.rules.aggregators import FORWARDS, REDUCTIONS

# Functions that PyG calls in propagate and that must be PyG's own; only the plain propagate calls the last
# two.
STEPS = ("aggregate", "update", "_check_input", "_set_size", "_index_select", "_index_select_safe")
PLAIN_STEPS = ("_collect", "_lift")

OVERRIDES = "this instance overrides"
HOOKED = "message passing hooks are registered on it"
# Functions that an instance may override, and names of the dictionaries of hooks that propagate reads.
OVERRIDDEN = ("message", *STEPS, *PLAIN_STEPS, "collect", "get_attention")
MESSAGE_HOOKS = tuple(
    f"_{function}_forward_{when}hooks"
    for function in ("propagate", "message", "aggregate", "message_and_aggregate")
    for when in ("pre_", "")
)

_WATCHED = ("_explain", "_decomposed_layers", *OVERRIDDEN)
_OF_AGGREGATION = ("forward", "reduce")


def layer_reason(layer: Any, fuses: bool, traced: bool = False) -> str | None:
    """Return why this instance has no fast path, apart from its class; None if it has one.

    Args:
        layer: The layer.
        fuses: Whether the class has a fused path in PyG.
        traced: Whether a program is traced. In eager mode, :func:`check_layer` looks for an explainer.
    """
    state = watched(layer, _WATCHED, MESSAGE_HOOKS) if traced else layer.__dict__
    if traced and state.get("_explain"):
        return EXPLAINED
    if state.get("_decomposed_layers", 1) != 1:
        return "decomposed_layers is not 1"
    # This tests all names at once, which is fastest, but torch does not trace it.
    if traced or not state.keys().isdisjoint(OVERRIDDEN):
        for name in OVERRIDDEN:
            if name in state:
                return f"{OVERRIDES} {name}"
    if any(map(state.get, MESSAGE_HOOKS)):
        return HOOKED
    if fuses and not state["fuse"] and isinstance(state["aggr"], str) and state["aggr"] in FUSE_AGGRS:
        return "its fuse switch is off"
    return None


def check_layer(layer: Any, fuses: bool, explained: bool = False) -> None:
    """Raises if this instance has no fast path, apart from its class.

    Args:
        layer: The layer.
        fuses: Whether the class has a fused path in PyG.
        explained: Whether an explainer may be running on the layer.

    Raises:
        Explained: An explainer is running on the layer.
        Leave: The layer has no fast path for another reason.
    """
    # This is the hot path, so the test makes no further calls.
    if not explained and layer.__dict__.get("_explain"):
        raise Explained(EXPLAINED)
    reason = layer_reason(layer, fuses)
    if reason is not None:
        raise Leave(reason)


def reduction_of(layer: Any, traced: bool = False) -> tuple[str, str | None]:
    """Return (reduction of the layer's aggregation module, None), or (any, why it has no fast path).

    Args:
        layer: The layer.
        traced: Whether a program is traced.
    """
    module = itself(layer.aggr_module) if traced else layer.__dict__["_modules"].get("aggr_module")
    reduce = REDUCTIONS.get(type(module))
    if reduce is None:
        return "", f"its aggregation is {type(module).__name__}, not sum, mean, max or min"
    state = watched(module, _OF_AGGREGATION, MODULE_HOOKS) if traced else module.__dict__
    if any(map(state.get, MODULE_HOOKS)):
        return "", "hooks are registered on its aggregation module"
    if "forward" in state or "reduce" in state:
        return "", "its aggregation module is overridden"
    if type(module).forward is not FORWARDS[reduce]:
        return "", f"another library replaced {type(module).__name__}.forward"
    if not traced and any(global_hooks(torch_module)):
        return "", "global module hooks are registered"
    return reduce, None


def watched(module: Any, names: Sequence[str], hooks: Sequence[str]) -> dict[str, Any]:
    """Return those of the named attributes that ``__dict__`` has, and the lengths of dictionaries of hooks.

    Conditions read them while a program is traced. torch recompiles the program when an attribute that was
    read, or a length, has changed. It does not notice additions to ``__dict__``, nor a first hook.
    """
    state: dict[str, Any] = {name: len(getattr(module, name)) for name in hooks}
    for name in names:
        value = getattr(module, name, None)
        if name in module.__dict__:
            state[name] = value
    return state


def module_reason(layer: Any) -> str | None:
    """Return why a layer cannot run its own message because of its submodules; None if it can."""
    return modules_reason(module for module in layer.modules() if module is not layer)


def has_hooks(module: Any) -> bool:
    """Return whether hooks are registered on a module itself."""
    return any(map(module.__dict__.get, MODULE_HOOKS))
