"""The rows of the patch table for torch's gathers and scatters, which run ours first.

The methods of ``torch.Tensor`` and the functions of ``torch`` are replaced, and of ``x[index]`` the slot of
the type (csrc/bindings/subscript.cpp): a method ``__getitem__`` would make every tensor a sequence. Calls
from C++ run torch's code.

Checks delay every call, so those of types come first, then those of sizes, then all others.
"""

import functools
import inspect
import logging
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.jit import _builtins

from onehop import native, thresholds
from onehop.integrations.rows import Part, Row, count, counting, is_own
from onehop.integrations.torch import indexing

_modes, _is_tracing = torch._C._len_torch_function_stack, torch._C._is_tracing
PART = Part()
# What our functions replace, by their ids.
_replaced: dict[int, Any] = {}
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
    found: list[Row] = []
    if all(_is_torchs(kind, "__getitem__", kind.__getitem__) for kind in indexing.PLAIN):
        found.append(_Subscripts(Tensor, "__getitem__", _subscript, Tensor.__getitem__, inherited=True))
    for name, body in indexing.FUNCTIONS.items():
        found += [*_rows(Tensor, name, body), *_rows(torch, name, body)]
    for name, body in indexing.IN_PLACE.items():
        found += _rows(Tensor, f"{name}_", body)
    return found + _rows(torch, "segment_reduce", indexing.segment_reduce, ("lengths", "offsets"))


def _rows(
    owner: Any, name: str, body: indexing.Body, of_index: tuple[str, str] = ("index", "index")
) -> list[Row]:
    """The row of a function; none where another library has put something else in its place."""
    found = getattr(owner, name)
    theirs = _replaced.get(id(found), found)
    if not _is_torchs(owner, name, theirs):
        return []
    inherited = isinstance(owner, type) and name not in vars(owner)
    of_entries = name.rstrip("_") in indexing.OF_ENTRIES
    return [Row(owner, name, _before(theirs, body, of_entries, *of_index), theirs, inherited)]


def _is_torchs(owner: Any, name: str, found: Any) -> bool:
    """Return whether a function is torch's own: the one of this name that the C++ code of torch has."""
    # PyG replaces some functions of torch by its own, which call these.
    if isinstance(found, FunctionType) and is_own(found):
        found = found.__globals__.get(f"_old_{name}")
    source: Any = torch._C._VariableFunctions if owner is torch else torch._C.TensorBase
    return bool(found == getattr(source, name))


@functools.cache  # TorchScript knows it by its id, so it must never be freed
def _before(theirs: Any, body: indexing.Body, of_entries: bool, name: str, other: str) -> Any:
    """A function that passes for ``theirs``, a builtin; it runs ``body`` first, which may return None.

    Its index is the third argument, or has one of the names, and is one of rows or one of entries.
    """
    modes, is_tracing, bounds, may_pay = _modes, _is_tracing, thresholds, indexing.may_pay
    told, cost, part = theirs.__name__, indexing.COST_OF_EXTREMA, PART

    # Types come first, and modes and traces before sizes: they would see whatever is looked at.
    def ours(*args, **kwargs):  # type: ignore[no-untyped-def]
        index: Any = args[2] if len(args) > 2 else kwargs.get(name)
        if index is None:
            index = kwargs.get(other)
        unseen = type(index) is Tensor and not (modes() or is_tracing())
        # As many numbers as entries are gathered or scattered, or a row for each.
        least = bounds.now.index_numbers // cost if of_entries else bounds.now.index_entries
        if unseen and index.numel() >= least and part.on and may_pay(args[0] if args else None, index):
            out = body(*args, **kwargs)
            if counting.live:
                count(told, out is not None)
            if out is not None:
                return out
        return theirs(*args, **kwargs)

    # Where it is found, as pickle looks it up.
    place = "Tensor." if inspect.ismethoddescriptor(theirs) else ""
    ours.__module__, ours.__qualname__ = "torch", place + theirs.__name__
    ours.__name__, ours.__doc__ = theirs.__name__, theirs.__doc__
    ours.onehop_theirs = theirs  # type: ignore[attr-defined]
    _replaced[id(ours)] = theirs
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
    if counting.live:
        count(told, out is not None)
    return out
