"""torch as a framework that can be patched: its dropout, and the CPU kernels of some operators.

``torch.nn.functional.dropout`` runs on :func:`onehop.dropout`'s kernels. The patch does not replace this
function but the two that it calls, ``torch._VF.dropout`` and ``torch._VF.dropout_``. So code that imported
the function by name earlier is included. What torch does around the two (errors, subclasses, ``torch.fx``,
the source that TorchScript and ``torch.compile`` read) is unchanged, and rows that replace
``torch.nn.functional.dropout`` itself, such as those for divided graphs, can be installed and restored in any
order. ``torch.dropout``, the same function by another name, is not replaced.

Gathers, scatters and products are operators; the patch replaces their kernels (:mod:`.kernels`), and the
kernels of torch_scatter.
"""

from typing import Any, cast

import torch
import torch.compiler.config
from torch import Tensor
from torch.jit import _builtins

from onehop.integrations.rows import Part, Row, count, counting
from onehop.integrations.session import OFF, TORCH, Framework, Settings
from onehop.integrations.torch import kernels
from onehop.ops.dropout import dropped, factors, serves
from onehop.ops.dropout_in_programs import applies, dropout as in_program

# torch's own functions, even if other libraries have replaced the public ones.
_theirs, _theirs_in_place = torch._C._VariableFunctions.dropout, torch._C._VariableFunctions.dropout_
_DROPOUT = Part()
_TAG = "cache_key_tag"
# Older releases of torch have no such tag; there, compiled programs keep torch's dropout.
_has_tag = hasattr(torch.compiler.config, _TAG)


class Torch(Framework):
    """torch as a patched framework: the settings choose which functions are replaced. It has no layers."""

    name = TORCH

    def __init__(self) -> None:
        super().__init__()
        self._settings = OFF

    def rows(self, settings: Settings) -> list[Row]:
        """Return the rows of the patch table for these settings."""
        return _rows_of_dropout() if settings.dropout else []

    def install(self, settings: Settings) -> None:
        """Installs the rows for these settings, and removes rows for other settings."""
        if settings != self._settings:
            self.remove()
            self._settings = settings
            super().install(settings)
            _DROPOUT.on = settings.dropout
            kernels.install(settings)

    def remove(self) -> None:
        """Restores the replaced attributes and kernels."""
        _DROPOUT.on = False
        kernels.remove()
        super().remove()
        self._settings = OFF

    def replaced(self) -> list[str]:
        """The dotted names of everything that is replaced now."""
        return [*super().replaced(), *kernels.replaced()]


class _Tagged(Row):
    """A row of a configuration value, which its module does not store as an attribute."""

    def restore(self) -> None:
        """Restores the value ``theirs``, unless other code has set another value."""
        if getattr(self.owner, self.attribute) == self.ours:
            setattr(self.owner, self.attribute, self.theirs)


def _rows_of_dropout() -> list[Row]:
    """Return the rows that replace dropout."""
    # torch._VF is an instance in the place of a module, and looks its attributes up elsewhere.
    owner = cast(Any, torch._VF)
    rows = [
        Row(owner, theirs.__name__, ours, theirs, inherited=True)
        for ours, theirs in ((_dropout, _theirs), (_dropout_in_place, _theirs_in_place))
        if getattr(owner, theirs.__name__) in (ours, theirs)
    ]
    if _has_tag:
        # torch finds compiled programs on disk by their source, which is the same with and without the patch.
        theirs = torch.compiler.config.cache_key_tag
        rows.append(_Tagged(torch.compiler.config, _TAG, f"{theirs}+onehop", theirs))
    return rows


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    # Only the value True is served. torch handles other values of train, and reports wrong ones.
    if train is True and _DROPOUT.on:
        served = serves(input, p)
        if counting.live:
            count("dropout", served)
        if served:
            return dropped(input, p)
        if _has_tag and applies(input, p):
            return in_program(input, p)
    return _theirs(input, p, train)


def _dropout_in_place(input: Tensor, p: float, train: bool) -> Tensor:
    if train is True and _DROPOUT.on and serves(input, p):
        # torch's own product checks whether the tensor may be written to, and saves what autograd needs.
        return input.mul_(factors(torch.empty_like(input, requires_grad=False), p))
    return _theirs_in_place(input, p, train)


# TorchScript recognises builtin functions by identity; registered so, our function is compiled as torch's.
_builtins._register_builtin(_dropout, "aten::dropout")
_builtins._register_builtin(_dropout_in_place, "aten::dropout_")
