"""TorchScript's view of a function that stands in for another: the overloads that it knows the other by."""

from collections.abc import Callable
from typing import Any

from torch import _jit_internal
from torch.jit import _state


def share_overloads(theirs: Callable[..., Any], ours: Callable[..., Any]) -> None:
    """Gives ``ours`` the overloads that ``theirs`` was declared with by ``torch.jit._overload``.

    TorchScript keeps overloads by the function's qualified name until the first compilation, and then,
    compiled, by the function object. Two functions of one name would take them from each other: whichever is
    compiled second has none. So ours gets a name of its own, and a copy.
    """
    name = _jit_internal._qualified_name(theirs)
    declared = _jit_internal._get_fn_overloads(name)
    compiled = _state._try_get_jit_cached_overloads(theirs)
    if declared is None and compiled is None:
        return
    own_name = f"{name}_of_onehop"
    ours._jit_override_qualname = own_name  # type: ignore[attr-defined]
    if declared is not None:
        _jit_internal._overloaded_fns[own_name] = list(declared)
    if compiled is not None:
        _state._set_jit_overload_cache(ours, compiled)
