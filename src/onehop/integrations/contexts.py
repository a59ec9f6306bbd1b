"""When torch itself is in a state in which no fast path applies, whatever the framework."""

import torch

from onehop.ops.batching import in_older_vmap


def autocasts(x: torch.Tensor) -> bool:
    """Whether autocast decides on the dtypes of what is computed where a tensor is, which has data."""
    return torch.is_autocast_enabled("cpu" if x.is_cpu else x.device.type)


def wraps(tensor: torch.Tensor) -> bool:
    """Tell if a tensor is a wrapper of a functorch transform, which may have ended: it has no memory."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


WRAPPED = "an operand was made inside a functorch transform"


def context_reason() -> str | None:
    """Why nothing can take the fast path now; None if it can."""
    if torch._C._are_functorch_transforms_active():
        return "a functorch transform (vmap, grad, jvp) is at work"
    if torch._C._len_torch_dispatch_stack():
        return "a torch dispatch mode is at work"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation is at work"
    if in_older_vmap():
        return "torch's older vmap is at work"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace is at work"
    return None
