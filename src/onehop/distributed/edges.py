"""The edges of one part as a tensor that cannot be mistaken for all edges of the graph."""

import sys
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError

_PROPERTIES = (
    *("shape", "dtype", "device", "layout", "nbytes", "itemsize", "ndim", "requires_grad", "grad_fn", "grad"),
    *("is_leaf", "is_sparse", "is_sparse_csr", "is_cpu", "is_cuda", "is_quantized", "is_nested", "is_meta"),
    "_version",
)
LOOKS = {
    *(getattr(Tensor, name).__get__ for name in _PROPERTIES),
    # Reversible layers and checkpoints set it again to its value, False.
    Tensor.requires_grad.__set__,  # type: ignore[attr-defined]
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.element_size, Tensor.storage_offset),
    *(Tensor.is_floating_point, Tensor.is_complex, Tensor.is_inference, Tensor.data_ptr, Tensor.get_device),
    *(torch.is_floating_point, torch.numel),
}
"""Attributes and functions that depend neither on a tensor's values nor on its layout in memory."""

_LAID_OUT = (Tensor.is_contiguous, Tensor.stride, Tensor.as_subclass)
_EQUAL = (Tensor.__eq__, Tensor.__ne__, Tensor.eq, Tensor.ne, torch.eq, torch.ne)


class PartEdges(torch.Tensor):
    """The edges of one part as a tensor [2, e], for layers that take an ``edge_index``.

    The tensor has a shape but takes no memory: its numbers are computed from the graph's rows for functions
    that may use them. Its class is :class:`onehop.distributed.graph.LocalEdges`, by which the patch
    recognises it. Row 1, the destinations, may be used like any tensor, because the part has all edges that
    end in the owned nodes. Row 0 may be compared with it. Everything else is an error, because the result
    would cover this part only; ``as_subclass(torch.Tensor)`` returns the numbers nevertheless.
    """

    graph: Any
    """The :class:`onehop.distributed.DistributedGraph` whose part has these edges."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run functions whose result is right for one part; refuse all others."""
        with torch._C.DisableTorchFunctionSubclass():
            if func in LOOKS:
                return func(*args, **(kwargs or {}))
            edges = args[0] if args else None
            if isinstance(edges, PartEdges):
                if func is Tensor.as_subclass:
                    return _plain(edges).as_subclass(*args[1:], **(kwargs or {}))
                if func is Tensor.is_contiguous:
                    return True
                if func is Tensor.__repr__:
                    return f"LocalEdges({edges.graph})"
                if func is Tensor.detach:
                    return edges  # it never needs a gradient
                is_rows = func in (Tensor.__iter__, Tensor.unbind, torch.unbind)
                if is_rows and len(args) == 1 and not kwargs:
                    return iter((_source(edges), _target(edges)))
                if func is Tensor.__getitem__ and type(args[1]) is int and args[1] in range(-2, 2):
                    return _target(edges) if args[1] % 2 else _source(edges)
        raise _refused(func)


class LocalSources(torch.Tensor):
    """The sources of one part's edges: owned rows, followed by halo rows."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run functions whose result is right for one part; refuse all others."""
        if func in LOOKS or func in _EQUAL or func in _LAID_OUT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise _refused(func)


def _plain(edges: Any) -> Tensor:
    plain: Tensor = edges.graph.ends()
    return plain


def _source(edges: Any) -> LocalSources:
    sources: LocalSources = _plain(edges)[0].as_subclass(LocalSources)
    return sources


def _target(edges: Any) -> Tensor:
    return _plain(edges)[1]


def _refused(func: Any) -> ArgumentError:
    name = getattr(func, "__name__", str(func))
    return ArgumentError(
        f"edge_index: {_caller()} computes with the edges itself ({name}), and a DistributedGraph's "
        "edge_index has those of this process alone, so it has no path over several processes. Call "
        "onehop.patch() if that was not done; else use another layer, the functions of onehop.distributed, "
        "or one process with the whole graph."
    )


def _caller() -> str:
    """Return the class of the running module, for the error message; "the caller" if there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        module = frame.f_locals.get("self")
        if isinstance(module, torch.nn.Module):
            return type(module).__name__
    return "the caller"
