"""Modules that a message calls: what keeps them from being watched on a few edges; modules in programs."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import _AttrProxy
from torch.nn import Module
from torch.nn.modules import module as torch_module

MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module keeps its hooks."""

global_hooks = attrgetter(*(f"_global{name}" for name in MODULE_HOOKS))
"""Reads the hooks for every module from torch's file of modules. No function: every layer calls it."""


def itself(module: Any) -> Any:
    """The module that ``torch.export`` shows as an object of a class derived from the module's.

    It does so with all modules of a model that has one of them in two places.
    """
    return module.get_base() if isinstance(module, _AttrProxy) else module  # type: ignore[attr-defined]


def modules_reason(modules: Iterable[Module]) -> str | None:
    """Return why modules keep the message that calls them from running here; None if they do not."""
    for module in modules:
        if isinstance(module, torch.jit.ScriptModule) or type(module).__module__.startswith("torch._dynamo"):
            return "a module in it is compiled"
        if module._compiled_call_impl is not None:
            return "a module in it is compiled"
        state = module.__dict__
        for name in MODULE_HOOKS:
            if state[name]:
                return "hooks are registered on a module in it"
        if "forward" in state:
            return "the forward of a module in it is overridden"
    return "global module hooks are registered" if has_global_hooks() else None


def has_global_hooks() -> bool:
    """Return whether torch has hooks for every module."""
    return any(global_hooks(torch_module))
