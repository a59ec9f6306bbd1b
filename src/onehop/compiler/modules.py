"""Conditions on the modules that a message calls, and modules in exported programs."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import _AttrProxy
from torch.nn import Module
from torch.nn.modules import module as torch_module

MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""The attributes in which a module keeps its hooks."""

global_hooks = attrgetter(*(f"_global{name}" for name in MODULE_HOOKS))
"""Reads the global module hooks from torch's module file; an attrgetter, because every layer calls it."""


def itself(module: Any) -> Any:
    """Return the module itself if ``torch.export`` shows it as an object of a derived class.

    torch.export does so for all modules of a model that contains a module twice.
    """
    return module.get_base() if isinstance(module, _AttrProxy) else module  # type: ignore[attr-defined]


def modules_reason(modules: Iterable[Module]) -> str | None:
    """Return why a message that calls these modules cannot run in onehop; None if it can."""
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
    """Return whether hooks for all modules are registered with torch."""
    return any(global_hooks(torch_module))
