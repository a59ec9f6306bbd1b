"""``torch.nn.functional.linear``: large float32 products on the CPU run in the fastest library."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.jit import _builtins
from torch.nn.parameter import Parameter

from onehop import thresholds
from onehop.integrations.rows import Row
from onehop.integrations.torch import sparse_features
from onehop.integrations.torch.products import linear_step
from onehop.ops.contexts import autocasts, context_reason, wraps
from onehop.ops.linear import torch_decides

_PLAIN = (Tensor, Parameter)
_ROWS_AND_COLUMNS = 2
_OMITTED: Any = object()
# Older releases of torch have named dimensions.
_has_names = getattr(Tensor, "has_names", None)


def row() -> Row:
    """The row of the patch table, for ``torch.nn.functional.linear`` as it is now."""
    return Row(F, "linear", _replacing(F.linear), F.linear)


@functools.cache  # TorchScript knows it by its id, so it must never be freed
def _replacing(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A function that passes for ``theirs``: torch's builtin, or a replacement of it by other code."""
    is_compiling, is_tracing = torch.compiler.is_compiling, torch._C._is_tracing

    def linear(input, weight, bias=_OMITTED, **others):  # type: ignore[no-untyped-def]
        # Most products are small, and every check delays them: their sizes are checked first.
        if not is_compiling() and not is_tracing() and type(input) is Tensor and type(weight) in _PLAIN:
            bounds, numbers = thresholds.now, input.numel()
            # An upper bound of the work, which takes less time than reading a size.
            if numbers * weight.numel() >= bounds.product_work or numbers >= bounds.sparse_numbers:
                large = weight.dim() == _ROWS_AND_COLUMNS and (
                    numbers * weight.size(0) >= bounds.product_work or numbers >= bounds.sparse_numbers
                )
                added = None if bias is _OMITTED else bias
                if large and not others and context_reason() is None and _suits(input, weight, added):
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
        and (_is_large(x, weight) or sparse_features.may_apply(x))
    )


def _is_large(x: Tensor, weight: Tensor) -> bool:
    return x.numel() * weight.size(0) >= thresholds.now.product_work


def _is_dense(tensor: Tensor) -> bool:
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not (_has_names is not None and _has_names(tensor))
    )
