"""States of torch in which nothing of ours can stand in for its operations, and tensors made in them."""

import torch
from torch.autograd import forward_ad

from onehop.ops.batching import in_older_vmap

is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_is_batched = torch._C._functorch.is_legacy_batchedtensor
# By one name each, for every call of a patched layer asks.
_transforms_are_active = torch._C._are_functorch_transforms_active
_length_of_modes = torch._C._len_torch_dispatch_stack
_is_tracing = torch._C._is_tracing


def context_reason() -> str | None:
    """Return why nothing can take the fast path now; None if it can."""
    if _transforms_are_active():
        return "a functorch transform (vmap, grad, jvp) is at work"
    if _length_of_modes():
        return "a torch dispatch mode is at work"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is at work"
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
