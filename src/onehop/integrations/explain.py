"""``onehop.explain()``: which layers of a model take the fast path, and why the others do not."""

import contextlib
import copy
import sys
from collections.abc import Iterable
from typing import Any

import torch

from onehop import config
from onehop.errors import ArgumentError, ConfigurationError
from onehop.integrations import reports
from onehop.integrations.explanation import Explanation, LayerReport
from onehop.integrations.patch import patch, patched, silence
from onehop.ops.contexts import as_in_program

_COMPILED = "_orig_mod"


def explain(model: torch.nn.Module, *inputs: Any, verbose: bool = False, **kwargs: Any) -> Explanation:
    """Runs a copy of the model once, without gradients, and reports how each layer ran.

    Neither the model nor torch's random state changes. Without a patch in place, it reports what
    :func:`onehop.patch` would do. For a model, or a part of one, that ``torch.compile`` compiled, it reports
    what the compiled program runs.

    Args:
        model: A module with layers of PyG or DGL.
        *inputs: Positional arguments of the model.
        verbose: Whether to print plans and the programs of compiled messages too, and sentences in full.
        **kwargs: Keyword arguments of the model.

    Raises:
        ArgumentError: ``model`` is not a ``torch.nn.Module``.
        ConfigurationError: ``ONEHOP_DISABLE=1`` forbids the patch.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"model: expected a torch.nn.Module, got {type(model).__name__}.")
    if not patched() and config.disabled():
        raise ConfigurationError(
            "ONEHOP_DISABLE=1: nothing is patched, so there is nothing to explain; unset it."
        )
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        # Copying a layer may draw random numbers too: some are constructed again and then filled.
        duplicate = copy.deepcopy(model)
        duplicate = _opened(model, duplicate)
        names = {id(module): _name(name) for name, module in duplicate.named_modules()}
        in_place = contextlib.nullcontext() if patched() else patch()
        with in_place, reports.recorded() as calls, torch.no_grad():
            duplicate(*inputs, **kwargs)
            heard = {id(call.layer) for call in calls}
            silent = [(m, silence(m)) for m in duplicate.modules() if id(m) not in heard]
            calls.extend(reports.Call(module, reason) for module, reason in silent if reason is not None)
    return Explanation(tuple(_rows(calls, names)), verbose)


class _InProgram(torch.nn.Module):
    """A compiled module that runs as in a program, without being compiled again."""

    def __init__(self, compiled: torch.nn.Module) -> None:
        super().__init__()
        self.add_module(_COMPILED, compiled)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs the module as in a program."""
        with as_in_program():
            return self.get_submodule(_COMPILED)(*inputs, **kwargs)


def _opened(model: torch.nn.Module, duplicate: torch.nn.Module) -> torch.nn.Module:
    """The duplicate, with those modules replaced that are compiled in the model."""
    if "torch._dynamo" not in sys.modules:  # Its import takes a second, and nothing is compiled.
        return duplicate
    from torch._dynamo import OptimizedModule

    # module.compile(), the other way to compile, leaves no trace in a copy.
    compiled = [
        isinstance(module, OptimizedModule) or module._compiled_call_impl is not None
        for module in model.modules()
    ]
    for is_compiled, (name, module) in zip(compiled, list(duplicate.named_modules()), strict=True):
        if not is_compiled:
            continue
        opened = _InProgram(module._orig_mod if isinstance(module, OptimizedModule) else module)
        if not name:
            return opened
        parent, _, own = name.rpartition(".")
        setattr(duplicate.get_submodule(parent), own, opened)
    return duplicate


def _name(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def _rows(calls: list[reports.Call], names: dict[int, str]) -> Iterable[LayerReport]:
    counted: dict[tuple[Any, ...], int] = {}
    for call in calls:
        name = names.get(id(call.layer), "(made while running)")
        how = call.form, call.reduce, call.backend, call.plan, call.program
        key = (name, type(call.layer).__name__, call.reason, *how, reports.framework_of(call.layer))
        counted[key] = counted.get(key, 0) + 1
    for (name, kind, *rest), number in counted.items():
        yield LayerReport(name, kind, number, *rest)
