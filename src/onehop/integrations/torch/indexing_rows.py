"""The rows of the patch table for torch's gathers and scatters, which run ours first.

The methods of ``torch.Tensor`` and the functions of ``torch`` are replaced, and of ``x[index]`` the slot of
the type (csrc/bindings/subscript.cpp): a method ``__getitem__`` would make every tensor a sequence. Calls
from C++ run torch's code.

Checks delay every call, so those of types come first, then those of sizes, then all others.
"""

import functools
import inspect
import logging
from typing import Any

import torch
from torch import Tensor
from torch.jit import _builtins

from onehop import native, thresholds
from onehop.integrations import rows as patch_table
from onehop.integrations.rows import Row
from onehop.integrations.torch import indexing

_modes, _is_tracing = torch._C._len_torch_function_stack, torch._C._is_tracing
_LOG = logging.getLogger("onehop")


class _Subscripts(Row):
    """The row of ``x[index]``, for tensors and parameters, not for classes of a user's."""

    def install(self) -> None:
        """Replaces the slots."""
        if not native.extension.replace_subscripts(list(indexing.PLAIN), self.ours):
            _LOG.info("x[index] is torch's own: this Python keeps the slots of its types elsewhere.")

    def restore(self) -> None:
        """Restores the slots, unless other code has replaced them since."""
        native.extension.restore_subscripts()


def rows() -> list[Row]:
    """The rows of the patch table."""
    found: list[Row] = [_Subscripts(Tensor, "__getitem__", _subscript, Tensor.__getitem__, inherited=True)]
    for name, body in indexing.FUNCTIONS.items():
        found += [_row(owner, name, body) for owner in (Tensor, torch)]
    for name, body in indexing.IN_PLACE.items():
        found.append(_row(Tensor, f"{name}_", body))
    found.append(_row(torch, "segment_reduce", indexing.segment_reduce, ("lengths", "offsets")))
    return found


def _row(owner: Any, name: str, body: indexing.Body, of_index: tuple[str, str] = ("index", "index")) -> Row:
    held = inspect.getattr_static(owner, name)
    inherited = isinstance(owner, type) and name not in vars(owner)
    of_entries = name.rstrip("_") in indexing.OF_ENTRIES
    return Row(owner, name, _before(getattr(owner, name), body, of_entries, *of_index), held, inherited)


@functools.cache  # TorchScript knows it by its id, so it must never be freed
def _before(theirs: Any, body: indexing.Body, of_entries: bool, name: str, other: str) -> Any:
    """A function that passes for ``theirs``, a builtin; it runs ``body`` first, which may return None.

    Its index is the third argument, or has one of the names, and is one of rows or one of entries.
    """
    modes, is_tracing, bounds, may_pay = _modes, _is_tracing, thresholds, indexing.may_pay
    told, count, cost = theirs.__name__, patch_table, indexing.COST_OF_EXTREMA

    # Types come first, and modes and traces before sizes: they would see whatever is looked at.
    def ours(*args, **kwargs):  # type: ignore[no-untyped-def]
        index: Any = args[2] if len(args) > 2 else kwargs.get(name)
        if index is None:
            index = kwargs.get(other)
        unseen = type(index) is Tensor and not (modes() or is_tracing())
        # As many numbers as entries are gathered or scattered, or a row for each.
        least = bounds.now.index_numbers // cost if of_entries else bounds.now.index_entries
        if unseen and index.numel() >= least and may_pay(args[0] if args else None, index):
            out = body(*args, **kwargs)
            if count.counter is not None:
                count.counter[told, out is not None] += 1
            if out is not None:
                return out
        return theirs(*args, **kwargs)

    # Where it is found, as pickle looks it up.
    place = "Tensor." if inspect.ismethoddescriptor(theirs) else ""
    ours.__module__, ours.__qualname__ = "torch", place + theirs.__name__
    ours.__name__, ours.__doc__ = theirs.__name__, theirs.__doc__
    ours.onehop_theirs = theirs  # type: ignore[attr-defined]
    # TorchScript finds a builtin operator by the function.
    operator = _builtins._find_builtin(theirs)
    if operator is not None:
        _builtins._register_builtin(ours, operator)
    return ours


def _subscript(x: Any, key: Any) -> Tensor | None:
    """``x[key]`` for a tensor, or a tuple with one; None where torch's code has to run."""
    told = "x[index]"
    index = key if type(key) is Tensor else next(each for each in key if type(each) is Tensor)
    if _modes() or _is_tracing() or index.numel() < thresholds.now.index_entries:
        return None
    if not indexing.may_pay(x, index, masks=True):
        return None
    out = indexing.subscript(x, key, index)
    if patch_table.counter is not None:
        patch_table.counter[told, out is not None] += 1
    return out
