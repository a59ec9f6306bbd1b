"""States of torch in which onehop's operations cannot replace torch's; they are checked first."""

from collections.abc import Iterable
from contextlib import AbstractContextManager

import torch
from torch.autograd import forward_ad, profiler
from torch.autograd.graph import disable_saved_tensors_hooks

from onehop.ops.batching import in_older_vmap as in_older_vmap
from onehop.scopes import Scoped

is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_is_batched = torch._C._functorch.is_legacy_batchedtensor
# Bound to names of this module, because every call of a patched layer reads them.
_transforms_are_active = torch._C._are_functorch_transforms_active
_length_of_modes = torch._C._len_torch_dispatch_stack
_is_tracing = torch._C._is_tracing
_is_compiling = torch.compiler.is_compiling
_tracing_state = torch._C._get_tracing_state
_keys = torch._C._dispatch_keys
_CPU = torch.device("cpu")


def context_reason(traced: bool = False) -> str | None:
    """Return why the fast path cannot be used in the current context; None if it can.

    Args:
        traced: Whether a program is traced; then torch's own dispatch modes are allowed.
    """
    if _transforms_are_active():
        return "a functorch transform (vmap, grad, jvp) is at work"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is at work"
    if traced:
        return None
    if _length_of_modes():
        return "a torch dispatch mode is at work"
    if _is_tracing():
        return "torch.jit.trace is at work"
    return None


WRAPPED = "an operand was made inside a transform (vmap, grad, jvp)"


def wraps(*tensors: torch.Tensor | None) -> bool:
    """Return whether a tensor represents others in a transform, which may have ended; it has no memory."""
    older = in_older_vmap()
    for tensor in tensors:
        if tensor is not None and (is_wrapped(tensor) or (older and _is_batched(tensor))):
            return True
    return False


def _plain_keys() -> frozenset[int]:
    """Return the dispatch keys of dense CPU tensors with memory, also in inference mode."""
    keys = [_keys(torch.empty(0, device=_CPU)).raw_repr()]
    with torch.inference_mode():
        keys.append(_keys(torch.empty(0, device=_CPU)).raw_repr())
    return frozenset(keys)


_PLAIN = _plain_keys()


def is_memory(x: torch.Tensor) -> bool:
    """Return whether a tensor has its numbers in CPU memory, and is not of a user's class."""
    kind = type(x)
    return (kind is torch.Tensor or kind is torch.nn.Parameter) and is_numbers(x)


def is_numbers(x: torch.Tensor) -> bool:
    """Return whether a tensor has its numbers in CPU memory; its class may be any."""
    # The keys show the device, the layout, names, pending negation, and tensors without memory.
    return _keys(x).raw_repr() in _PLAIN


def has_memory(x: torch.Tensor) -> bool:
    """Return whether :func:`is_memory` holds, and no mode or hook observes operations on the tensor."""
    return not (
        _length_of_modes()
        or _transforms_are_active()
        or forward_ad._current_level >= 0
        or _tracing_state() is not None
        or in_older_vmap()
    ) and is_memory(x)


as_program = Scoped("onehop_as_program", False)
"""Whether layers run as in a compiled program although none is traced; ``explain`` sets it."""


def compiling() -> bool:
    """Return whether layers are traced into a program, or run as in one.

    Code in the hot path of attention reads both conditions directly.
    """
    return torch.compiler.is_compiling() or as_program.get()


def as_in_program() -> AbstractContextManager[bool]:
    """Lets this thread's layers run as in a compiled program inside the block."""
    return as_program.set(True)


def autocasts(x: torch.Tensor) -> bool:
    """Return whether autocast is on for the device of a tensor, which must have data."""
    return torch.is_autocast_enabled("cpu" if x.is_cpu else x.device.type)


def lowers(x: torch.Tensor) -> bool:
    """Return whether autocast may convert a tensor, which must have data, for products."""
    return x.dtype in _LOWERED and autocasts(x)


def widened(x: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums and exponentials of numbers of ``dtype`` on the device of ``x``.

    On a GPU, autocast computes both in at least float32; on the CPU, it does not change their dtype.
    """
    return dtype if x.is_cpu or not autocasts(x) else torch.promote_types(dtype, torch.float32)


def autocast_dtype(x: torch.Tensor) -> torch.dtype | None:
    """Return the dtype that autocast gives to products of a CPU tensor, which must have data.

    The result is None if autocast does not change it: it is off, or the tensor is float64 or on another
    device.
    """
    if x.is_cpu and torch.is_autocast_enabled("cpu") and x.dtype in _LOWERED:
        return torch.get_autocast_dtype("cpu")
    return None


_LOWERED = (torch.float32, torch.bfloat16, torch.float16)


def _is_watched_by_asking() -> bool:
    """Return whether there are default saved-tensor hooks, in releases of torch with a query for them."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _is_watched_by_trying() -> bool:
    """Return whether there are default saved-tensor hooks, in torch 2.6 and others without a query.

    torch raises an error if hooks are disabled while some are set.
    """
    try:
        with disable_saved_tensors_hooks("onehop looks whether there are hooks"):
            return False
    except RuntimeError:
        return True


def is_plain(x: torch.Tensor) -> bool:
    """Return whether a tensor is of torch's own class, and no mode or hook observes operations on it."""
    kind = type(x)
    return not (
        _is_compiling()
        or (kind is not torch.Tensor and kind is not torch.nn.Parameter)
        or _length_of_modes()
        or _transforms_are_active()
        or forward_ad._current_level >= 0
        or profiler._is_profiler_enabled
    )


def in_memory(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy if its numbers are not literally in memory; differentiable.

    For example, torch's gradient of sign() is a zero tensor without memory, and the gradient of an imaginary
    part may be negated lazily.
    """
    return x.clone() if x.is_neg() or x._is_zerotensor() or x.is_conj() else x


def are_in_memory(args: Iterable[object]) -> bool:
    """Return whether :func:`in_memory` would copy no tensor among the arguments."""
    return all(in_memory(arg) is arg for arg in args if isinstance(arg, torch.Tensor))


def materialized(grads: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients, each converted by :func:`in_memory`."""
    return tuple(None if each is None else in_memory(each) for each in grads)


saving_is_watched = (
    _is_watched_by_asking
    if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    else _is_watched_by_trying
)
"""Return whether saved-tensor hooks are set.

Activation checkpointing sets them: it runs the forward pass again during the backward pass, and compares the
saved tensors. So nothing may depend on state that a forward pass changes, for example on lazy parameters.
"""
