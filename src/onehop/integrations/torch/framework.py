"""torch itself as a framework that can be patched: dropout, large linear steps, and indexing.

Dropout is ``torch.nn.functional.dropout``, and everything that calls it, on :func:`onehop.dropout`'s kernels.
The two functions that it calls are replaced, ``torch._VF.dropout`` and ``torch._VF.dropout_``, not the
function itself. So callers that imported it by name earlier are included. What torch does around them
(errors, subclasses, ``torch.fx``, the source that TorchScript and ``torch.compile`` read) is unchanged, and
rows that replace ``torch.nn.functional.dropout`` itself, such as those for divided graphs, can be installed
and restored in any order. ``torch.dropout``, the same function by another name, is not replaced.

Linear steps are ``torch.nn.functional.linear``: large float32 products on the CPU run in the fastest library.
Gathers and scatters are in :mod:`onehop.integrations.torch.indexing`, and those of torch_scatter in
:mod:`onehop.integrations.torch.scatters`.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.compiler.config
import torch.nn.functional as F
from torch import Tensor
from torch.jit import _builtins
from torch.nn.parameter import Parameter

from onehop import thresholds
from onehop.integrations.rows import Part, Row, building, count, counting
from onehop.integrations.session import OFF, TORCH, Framework, Settings
from onehop.integrations.torch import kernels, scatters, sparse_features
from onehop.integrations.torch.products import LINEAR_STEPS, THEIRS, is_torchs, linear_step
from onehop.ops.contexts import autocasts, context_reason, wraps
from onehop.ops.dropout import dropped, factors, serves
from onehop.ops.dropout_in_programs import applies, dropout as in_program
from onehop.ops.linear import torch_decides

# torch's own, whatever other libraries have put in their places.
_theirs, _theirs_in_place = torch._C._VariableFunctions.dropout, torch._C._VariableFunctions.dropout_
_DROPOUT, _PRODUCTS, _INDEXING = Part(), Part(), Part()
_TAG = "cache_key_tag"
# Older releases of torch have none; their programs keep torch's dropout.
_has_tag = hasattr(torch.compiler.config, _TAG)

_PLAIN = (Tensor, Parameter)
_ROWS_AND_COLUMNS = 2
_OMITTED: Any = object()
# Older releases of torch have named dimensions.
_has_names = getattr(Tensor, "has_names", None)


class Torch(Framework):
    """The functions of torch that are replaced, as chosen by the settings. It has no layers over edges."""

    name = TORCH

    def __init__(self) -> None:
        super().__init__()
        self._settings = OFF

    def rows(self, settings: Settings) -> list[Row]:
        """The rows of the patch table for these settings."""
        return [
            *(_rows_of_dropout() if settings.dropout else ()),
            *([Row(F, "linear", _linear, THEIRS)] if settings.products and is_torchs() else ()),
            *(_rows_of_scatters() if settings.indexing else ()),
        ]

    def install(self, settings: Settings) -> None:
        """Installs the rows for these settings instead of those for others."""
        if settings != self._settings:
            self.remove()
            self._settings = settings
            super().install(settings)
            _DROPOUT.on, _PRODUCTS.on, _INDEXING.on = settings.dropout, settings.products, settings.indexing
            if settings.indexing:
                kernels.install()

    def remove(self) -> None:
        """Restores what the rows replaced."""
        _DROPOUT.on = _PRODUCTS.on = _INDEXING.on = False
        kernels.remove()
        super().remove()
        self._settings = OFF

    def replaced(self) -> list[str]:
        """The dotted names of everything that is replaced now."""
        return [*super().replaced(), *kernels.replaced()]


def _rows_of_scatters() -> list[Row]:
    with building.set(_INDEXING):
        return scatters.rows()


class _Tagged(Row):
    """A row of a setting, which its module holds elsewhere than in its attributes."""

    def restore(self) -> None:
        """Puts theirs back, unless other code has set something else."""
        if getattr(self.owner, self.attribute) == self.ours:
            setattr(self.owner, self.attribute, self.theirs)


def _rows_of_dropout() -> list[Row]:
    """The rows of dropout."""
    # torch._VF, an instance that passes for a module, looks its attributes up elsewhere.
    owner = cast(Any, torch._VF)
    rows = [
        Row(owner, theirs.__name__, ours, theirs, inherited=True)
        for ours, theirs in ((_dropout, _theirs), (_dropout_in_place, _theirs_in_place))
        if getattr(owner, theirs.__name__) in (ours, theirs)
    ]
    if _has_tag:
        # torch finds programs that it keeps on disk by their source, which is the same without the patch.
        theirs = torch.compiler.config.cache_key_tag
        rows.append(_Tagged(torch.compiler.config, _TAG, f"{theirs}+onehop", theirs))
    return rows


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    # Where it is on: other values of train are torch's to report.
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


# TorchScript compiles calls of builtin functions by their identity: for ours, it compiles theirs.
_builtins._register_builtin(_dropout, "aten::dropout")
_builtins._register_builtin(_dropout_in_place, "aten::dropout_")


def _stand_in(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A function that passes for ``theirs``, torch's builtin."""
    in_dynamo, flags, is_tracing = torch.compiler.is_dynamo_compiling, torch.compiler, torch._C._is_tracing

    def linear(input, weight, bias=_OMITTED, **others):  # type: ignore[no-untyped-def]
        # Most products are small, and every check delays them: their sizes are checked first.
        seen = in_dynamo() or flags._is_compiling_flag or is_tracing()
        if not seen and type(input) is Tensor and type(weight) in _PLAIN:
            bounds, numbers = thresholds.now, input.numel()
            # An upper bound of the work, which takes less time than reading a size.
            if numbers * weight.numel() >= bounds.product_work or numbers >= bounds.sparse_numbers:
                large = weight.dim() == _ROWS_AND_COLUMNS and (
                    numbers * weight.size(0) >= bounds.product_work
                    or (numbers >= bounds.sparse_numbers and not sparse_features.is_known_dense(input))
                )
                added = None if bias is _OMITTED else bias
                may_serve = large and not others and _PRODUCTS.on and context_reason() is None
                if may_serve and _suits(input, weight, added):
                    if counting.live:
                        count("linear", True)
                    return linear_step(input, weight, added, fastest=True)
        # Subclasses and tracers see the arguments, so an omitted bias stays omitted.
        if bias is _OMITTED:
            return theirs(input, weight, **others)
        return theirs(input, weight, bias, **others) if others else theirs(input, weight, bias)

    linear.__doc__ = theirs.__doc__
    linear.__module__, linear.__qualname__ = F.__name__, "linear"
    linear.onehop_theirs = theirs  # type: ignore[attr-defined]
    # TorchScript finds the builtin operator by the function.
    name = _builtins._find_builtin(theirs)
    if name is not None:
        _builtins._register_builtin(linear, name)
    return linear


_linear = _stand_in(THEIRS)
LINEAR_STEPS.add(id(_linear))


def _suits(x: Tensor, weight: Tensor, bias: Any) -> bool:
    """Return whether a large product may run in the fastest library, or over a graph of sparse features."""
    operands = (x, weight) if bias is None else (x, weight, bias)
    return (
        x.dim() >= _ROWS_AND_COLUMNS
        and all(map(_is_dense, operands))
        and x.numel() * weight.size(0) > 0
        and x.size(-1) == weight.size(1)
        and (bias is None or (type(bias) in _PLAIN and bias.shape == weight.shape[:1]))
        and not wraps(*operands)
        and not autocasts(x)
        # torch reports itself that inference tensors cannot be saved.
        and not (torch.is_grad_enabled() and any(each.is_inference() for each in operands))
        and not torch_decides()
        and (x.numel() * weight.size(0) >= thresholds.now.product_work or sparse_features.may_apply(x))
    )


def _is_dense(tensor: Tensor) -> bool:
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not (_has_names is not None and _has_names(tensor))
    )
