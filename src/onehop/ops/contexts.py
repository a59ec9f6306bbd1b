"""States of torch in which our operations cannot replace its own; checked before anything else."""

from collections.abc import Iterable
from contextlib import AbstractContextManager

import torch
from torch.autograd import forward_ad, profiler
from torch.autograd.graph import disable_saved_tensors_hooks

from onehop.ops.batching import in_older_vmap as in_older_vmap
from onehop.scopes import Scoped

is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_is_batched = torch._C._functorch.is_legacy_batchedtensor
# Bound to names of this module: every call of a patched layer reads them.
_transforms_are_active = torch._C._are_functorch_transforms_active
_length_of_modes = torch._C._len_torch_dispatch_stack
_is_tracing = torch._C._is_tracing
_is_compiling = torch.compiler.is_compiling
_tracing_state = torch._C._get_tracing_state
_keys = torch._C._dispatch_keys
_CPU = torch.device("cpu")


def context_reason(traced: bool = False) -> str | None:
    """Return why nothing can take the fast path now; None if it can.

    Args:
        traced: Whether a program is traced, for which torch has dispatch modes of its own.
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
    """Return whether a tensor stands for others, by a transform that may have ended: it has no memory."""
    older = in_older_vmap()
    for tensor in tensors:
        if tensor is not None and (is_wrapped(tensor) or (older and _is_batched(tensor))):
            return True
    return False


def _plain_keys() -> frozenset[int]:
    """Return the dispatch keys of dense CPU tensors that hold their numbers, also in inference mode."""
    keys = [_keys(torch.empty(0, device=_CPU)).raw_repr()]
    with torch.inference_mode():
        keys.append(_keys(torch.empty(0, device=_CPU)).raw_repr())
    return frozenset(keys)


_PLAIN = _plain_keys()


def is_memory(x: torch.Tensor) -> bool:
    """Return whether a tensor is numbers in the CPU's memory, of no class of a user's."""
    kind = type(x)
    return (kind is torch.Tensor or kind is torch.nn.Parameter) and is_numbers(x)


def is_numbers(x: torch.Tensor) -> bool:
    """Return whether a tensor is numbers in the CPU's memory, of any class."""
    # The keys tell the device, the layout, names, pending negation, and tensors without numbers.
    return _keys(x).raw_repr() in _PLAIN


def has_memory(x: torch.Tensor) -> bool:
    """Return whether :func:`is_memory`, and nothing observes what is done with the tensor."""
    return not (
        _length_of_modes()
        or _transforms_are_active()
        or forward_ad._current_level >= 0
        or _tracing_state() is not None
        or in_older_vmap()
    ) and is_memory(x)


as_program = Scoped("onehop_as_program", False)
"""Whether layers run as in a compiled program although none is traced: ``explain`` sets it."""


def compiling() -> bool:
    """Return whether a layer leaves in a program what runs it, instead of running.

    Code that every call of attention passes reads both itself.
    """
    return torch.compiler.is_compiling() or as_program.get()


def as_in_program() -> AbstractContextManager[bool]:
    """Lets layers run as in a compiled program inside the block, in its thread."""
    return as_program.set(True)


def autocasts(x: torch.Tensor) -> bool:
    """Return whether autocast decides on the dtypes of what is computed where a tensor is, which has data."""
    return torch.is_autocast_enabled("cpu" if x.is_cpu else x.device.type)


def lowers(x: torch.Tensor) -> bool:
    """Return whether autocast converts a tensor, which has data, for products as it likes."""
    return x.dtype in _LOWERED and autocasts(x)


def widened(x: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums and exponentials of numbers of a dtype, beside a tensor, which has data.

    Autocast takes both in float32 at least on a GPU, and leaves them alone on the CPU.
    """
    return dtype if x.is_cpu or not autocasts(x) else torch.promote_types(dtype, torch.float32)


def autocast_dtype(x: torch.Tensor) -> torch.dtype | None:
    """The dtype that autocast gives to products of a tensor, which has data, on the CPU.

    None where it leaves them alone: it is off, the tensor is on another device, or of float64.
    """
    if x.is_cpu and torch.is_autocast_enabled("cpu") and x.dtype in _LOWERED:
        return torch.get_autocast_dtype("cpu")
    return None


_LOWERED = (torch.float32, torch.bfloat16, torch.float16)


def _is_watched_by_asking() -> bool:
    """Return whether there are default hooks on saved tensors, in releases of torch that tell."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _is_watched_by_trying() -> bool:
    """Return whether there are default hooks on saved tensors, in torch 2.6 and others that do not tell.

    Hooks cannot be forbidden where there are some: torch refuses.
    """
    try:
        with disable_saved_tensors_hooks("onehop looks whether there are hooks"):
            return False
    except RuntimeError:
        return True


def is_plain(x: torch.Tensor) -> bool:
    """Return whether a tensor is of torch's own class, and nothing observes what is done with it."""
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
    """Return the tensor, or a copy whose numbers are in memory as they are, for kernels. Differentiable.

    torch's gradient of a sign, for example, is zeros without memory, and an imaginary part's may be
    negated on reading.
    """
    return x.clone() if x.is_neg() or x._is_zerotensor() or x.is_conj() else x


def are_in_memory(args: Iterable[object]) -> bool:
    """Return whether :func:`in_memory` copies none of the tensors among some arguments."""
    return all(in_memory(arg) is arg for arg in args if isinstance(arg, torch.Tensor))


def materialized(grads: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
    """Return gradients as :func:`in_memory` does each of them."""
    return tuple(None if each is None else in_memory(each) for each in grads)


saving_is_watched = (
    _is_watched_by_asking
    if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    else _is_watched_by_trying
)
"""Return whether hooks see what is saved for the backward pass.

Activation checkpointing is among them: it runs the forward pass again, during the backward pass, and compares
what is saved. So nothing may depend on what a forward pass changes, as lazy parameters do.
"""
