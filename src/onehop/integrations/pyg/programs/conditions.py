"""Conditions under which a layer in a program runs PyG's own code, each with the sentence that says so.

They are those of eager layers (:mod:`onehop.integrations.pyg.layer`), in Python that torch can trace and
guard, so that a program is compiled again when one of them changes. Whatever follows from the class alone is
a constant of the program. Operands are admitted by the same specs as eagerly.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch_geometric.nn.conv import gcn_conv

from onehop.backends import backend_for
from onehop.integrations import reports, session
from onehop.integrations.pyg.edges.program import constant_refusal
from onehop.integrations.pyg.known import classes_returning_weights, edge_updates
from onehop.integrations.pyg.layer import (
    DECOMPOSED,
    EXPLAINED,
    HOOKED,
    HOOKED_AGGREGATION,
    MESSAGE_HOOKS,
    NOT_SIMPLE,
    OVERRIDDEN,
    OVERRIDES,
    block_class_reason,
    rendering_reason,
    rule_of,
)
from onehop.integrations.pyg.leave import FLOATS, Leave
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.integrations.pyg.rules.table import TABLE
from onehop.integrations.rows import replaced

F = TypeVar("F", bound=Callable[..., Any])
# torch gives it no types.
_constant = cast(Callable[[F], F], torch._dynamo.assume_constant_result)

# As code sees tensors that torch.compile traces, and those that torch.export does.
_PLAIN = (Tensor, FakeTensor, FunctionalTensor)
_transforms_are_active = torch._C._are_functorch_transforms_active

NOT_TRACED = "it is in a compiled program, and onehop's operators there do not compute its messages"
ASKED = "it is in a compiled program, and its attention weights are asked for"
_ONE_BY_ONE = "it is in a compiled program, and a simulated machine runs layers outside programs alone"


def reason(layer: Any, edge_index: Any) -> str | None:
    """Return why PyG's code is traced for a layer; None if onehop's operators run it.

    Args:
        layer: The layer.
        edge_index: Its edges.
    """
    now = session.now
    if not now.pyg:
        return "the patch is not in place"
    if now.machine:
        return _ONE_BY_ONE
    if _transforms_are_active():
        return "a functorch transform (vmap, grad, jvp) is at work"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is at work"
    kind = type(layer)
    # The functions are named for torch to note: a program is made anew where one is replaced.
    found: str = class_sentence(kind, now.layers, kind.message, kind.aggregate, kind.update)
    if found:
        return found
    setup: str | None = _setup_reason(layer)
    return setup or edges_reason(edge_index)


def _setup_reason(layer: Any) -> str | None:
    """Return as :func:`~onehop.integrations.pyg.layer.layer_reason`, in Python that torch guards."""
    if layer._explain:
        return EXPLAINED
    if layer.decomposed_layers != 1:
        return DECOMPOSED
    for name in OVERRIDDEN:
        # Torch guards what it reads, but not what is in a dictionary.
        getattr(layer, name, None)
        if name in layer.__dict__:
            return f"{OVERRIDES} {name}"
    for name in MESSAGE_HOOKS:
        # Torch guards the number of hooks, but not whether there are any.
        if len(getattr(layer, name)) > 0:
            return HOOKED
    module = layer.aggr_module
    if type(module) not in REDUCTIONS:
        return f"its aggregation is {type(module).__name__}, {NOT_SIMPLE}"
    if not is_untouched(module):
        return HOOKED_AGGREGATION
    return None


def is_untouched(module: Any) -> bool:
    """Return whether a module has no hooks and no forward of its own."""
    module.forward  # noqa: B018, torch notes it
    hooks = (
        len(module._forward_hooks)
        + len(module._forward_pre_hooks)
        + len(module._backward_hooks)
        + len(module._backward_pre_hooks)
    )
    return hooks == 0 and "forward" not in module.__dict__


def edges_reason(edge_index: Any) -> str | None:
    """Return why such edges are left to PyG; None if they are not."""
    if type(edge_index) not in _PLAIN:
        return "edge_index is not a plain tensor, and it is in a compiled program"
    if edge_index.layout is not torch.strided:
        return "edge_index is a sparse matrix, for which PyG has its own code"
    if edge_index.dtype is not torch.int64 and edge_index.dtype is not torch.int32:
        return "PyG is left to report what does not fit"
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        return "PyG is left to report what does not fit"
    return None


def features_reason(x: Any, dims: tuple[int, ...], edge_index: Tensor) -> str | None:
    """Return why such features are left to PyG; None if they are not."""
    if not isinstance(x, Tensor):
        return "the features are no tensor"
    if x.dtype not in FLOATS:
        return "the features are not floating-point numbers of 16, 32 or 64 bits"
    if x.layout is not torch.strided:
        return "the features are sparse"
    if x.dim() not in dims:
        return "node_dim is not the first of two dimensions, nor the middle one of three"
    if x.device != edge_index.device:
        return "edge_index and the features are on different devices"
    refused = constant_refusal(session.now.backend, x.device.type, x.dtype)
    return f"features of {x.dtype} on {x.device.type} have no backend: {refused}" if refused else None


# Constants of a program: strings, for torch takes those as they are. An empty one stands for none.


@_constant
def class_sentence(kind: Any, *_: Any) -> str:
    """Return why a class has no fast path; empty if it has."""
    try:
        rule_of(kind)
    except Leave as why:
        # The message of a layer that runs is traced too, to run in blocks; here torch traces.
        blocks = block_class_reason(kind) is None
        return f"{why.sentence}, and no blocks run in compiled programs" if blocks else why.sentence
    theirs = replaced(kind.propagate)
    return "" if theirs is None else rendering_reason(kind, theirs) or ""


@_constant
def rule_name(kind: Any) -> str:
    """The name in the table of the rule of a class that has one."""
    rule = rule_of(kind)
    return next(name for name, each in TABLE.items() if each is rule)


@_constant
def attention_kind(kind: Any) -> str:
    """The scores of a class: "gat" or "gatv2" of its ``edge_update``, "dot"; empty for others."""
    if rule_of(kind) is TABLE["TransformerConv"]:
        return "dot"
    return edge_updates().get(kind.edge_update, "") if rule_of(kind) is TABLE["GATConv"] else ""


@_constant
def is_patched(kind: Any) -> bool:
    """Return whether the functions of an attention class are those that onehop stands in for."""
    functions = [kind.propagate, *([kind.edge_updater] if kind.edge_update in edge_updates() else [])]
    return all(replaced(function) is not None for function in functions)


@_constant
def has_noting_forward(kind: Any) -> bool:
    """Return whether a class has a ``forward`` that asks whether attention runs in the program."""
    return kind in classes_returning_weights() or kind.forward in [
        each.forward for each in classes_returning_weights()
    ]


@_constant
def has_message_of(kind: Any, base: Any) -> bool:
    """Return whether a class has the message function of another."""
    return kind.message is base.message


@_constant
def is_normalised_by(gcn_norm: Any) -> bool:
    """Return whether GCN's normalisation is the function that stands in for PyG's."""
    return gcn_conv.gcn_norm is gcn_norm


@_constant
def counts_when_it_runs() -> bool:
    """Return whether a program may hold tensors whose size is known when it runs, as with ``fullgraph=True``.

    They would end it otherwise, and in a loop torch then compiles nothing of the function around it.
    """
    mode = torch._guards.detect_fake_mode()
    return bool(mode and mode.shape_env and mode.shape_env.allow_dynamic_output_shape_ops)


def note(layer: Any, x: Tensor, form: str, reduce: str) -> None:
    """Notes for ``explain`` what operators run a layer in a program; while one is traced, nothing."""
    if not torch.compiler.is_compiling():
        backend = backend_for(x.device, x.dtype, session.now.backend).name
        reports.record(reports.Call(layer, None, form, reduce, backend, "in a compiled program"))


def refuse(layer: Any, sentence: str) -> None:
    """Notes that PyG's code is traced for a layer: one log line a class and sentence, as for eager ones."""
    if torch.compiler.is_compiling():
        _log(type(layer), sentence)
    else:
        reports.refuse(layer, sentence)


@_constant
def _log(kind: Any, sentence: str) -> str:
    reports.log(kind, sentence)
    return ""
