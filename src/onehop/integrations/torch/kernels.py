"""Replacement of the CPU kernels of torch's gathers, scatters and products in torch's dispatcher.

Kernels run below autograd, for every caller (csrc/torch/operators.hpp). torch's own code still handles names,
errors, versions, saved tensors, hooks, modes, gradients of gradients and tracing, and runs calls below the
thresholds. Calls with large tensors run the functions of :mod:`onehop.integrations.torch.indexing` and
:mod:`onehop.integrations.torch.dense`; if one returns None, torch's kernel runs.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from onehop import native, thresholds
from onehop.integrations import session
from onehop.integrations.rows import count, counting
from onehop.integrations.session import Settings
from onehop.integrations.torch import (
    dense,
    indexing,
    scatters,
    sorts,
    sparse_gradients,
    sparse_products,
    sparse_values,
    spmm,
)
from onehop.integrations.torch.served import Served
from onehop.loading import imported

# The numbers of the dispatch keys of dense tensors, COO matrices and compressed ones, and autograd's.
_KEYS: Any = [
    int(getattr(torch._C.DispatchKey, name)) for name in ("CPU", "SparseCPU", "SparseCsrCPU", "AutogradCPU")
]
_LOG = logging.getLogger("onehop")
_LIBRARIES = Path(torch.__file__).parent / "lib"
_extension: Any = native.extension
_without_torch_functions = torch._C.DisableTorchFunction
_INDEXING, _PRODUCTS = _extension.IndexingKernels, _extension.ProductKernels
_SPARSE = _extension.SparseProductKernels
# Of packages whose operators are served while they are imported.
_OF_PACKAGES: dict[str, Any] = {
    scatters.PACKAGE: _extension.TorchScatterKernels,
    spmm.PACKAGE: _extension.TorchSparseKernels,
}
_BY_SETTING: dict[str, tuple[Any, ...]] = {"indexing": (_INDEXING, _SPARSE), "products": (_PRODUCTS,)}
_SERVED: dict[Any, Mapping[str, Served]] = {
    _INDEXING: {**indexing.SERVED, **sorts.SERVED},
    _PRODUCTS: dense.SERVED,
    _SPARSE: {**sparse_products.SERVED, **sparse_gradients.SERVED, **sparse_values.SERVED},
    _OF_PACKAGES[scatters.PACKAGE]: scatters.SERVED,
    _OF_PACKAGES[spmm.PACKAGE]: spmm.SERVED,
}


def install(settings: Settings) -> None:
    """Replaces the kernels that the settings choose, and restores torch's kernels for the others.

    Nothing is replaced if the interface of this release of torch is not known.
    """
    chosen = [kernels for name, group in _BY_SETTING.items() if getattr(settings, name) for kernels in group]
    if chosen and not is_known():
        _LOG.info("Gathers, scatters and products are torch's: torch %s is not known.", torch.__version__)
        return
    for kernels in (_INDEXING, _PRODUCTS, _SPARSE):
        kernels.install() if kernels in chosen else kernels.remove()
    for package, kernels in _OF_PACKAGES.items():
        library = library_of(package) if settings.indexing else None
        kernels.remove() if library is None else kernels.install(library)


def library_of(package: str) -> str | None:
    """Return the folder of a package, which registers operators; None if it has not been imported."""
    module = imported(package)
    return None if module is None else str(Path(module.__file__).parent)


def remove() -> None:
    """Restores the kernels of torch and of packages."""
    for kernels in _SERVED:
        kernels.remove()


def replaced() -> list[str]:
    """Return the names of the operators of which a kernel is replaced now."""
    names = [
        f"torch.ops.{name.replace('::', '.')}{' (sparse)' if kernels is _SPARSE else ''}"
        for kernels in _SERVED
        for name in kernels.installed()
    ]
    return list(dict.fromkeys(names))


_known: bool | None = None


def is_known() -> bool:
    """Return whether kernels can be replaced in the dispatcher of this release of torch."""
    global _known
    with session.lock:
        if _known is None:
            with _usually():
                _known = _find()
            if _known:
                thresholds.follow(_set_bounds)
                _extension.widen_products(*(not dense.has_instructions(half) for half in dense.HALVES))
        return _known


@contextlib.contextmanager
def _usually() -> Iterator[None]:
    """Lets calls inside the block reach kernels in torch's usual way, in whatever mode the caller runs."""
    with torch.inference_mode(False), torch.no_grad(), _without_torch_functions(), _disable_current_modes():
        yield


def _find() -> bool:
    """Finds out how torch stores kernels and passes arguments, by calls with a few numbers."""
    cpu, python = (str(next(_LIBRARIES.glob(f"lib{name}.*"), "")) for name in ("torch_cpu", "torch_python"))
    if not _extension.load_torch(cpu, python):
        return False
    x, index = torch.ones(2, 2, device="cpu"), torch.zeros(1, dtype=torch.int64, device="cpu")
    entries = index.view(1, 1)
    aten: Any = torch.ops.aten

    def trace() -> None:
        # Calls with a tensor of inference mode skip autograd's kernels.
        with torch.inference_mode():
            torch.trace(x.clone())

    # In inference mode, no autograd kernel takes the arguments off the stack.
    gather = torch.inference_mode()(lambda: aten.gather(x, 1, entries))
    reduce = torch.inference_mode()(lambda: aten.scatter_reduce(x, 0, entries, x, "mean"))

    def add_twice() -> None:
        for alpha in (1, 7):
            aten.index_add(x, 0, index, x[:1], alpha=alpha)

    is_ready: bool = (
        _extension.find_kernels(trace, _KEYS)
        and _extension.learn_lists(lambda: aten.index(x, [None, index]), index._cdata)
        and _extension.learn_scalars(add_twice)
        and _extension.learn_texts(lambda: aten.scatter_reduce(x, 0, entries, x, "mean"))
    )
    if is_ready:
        # If this fails, torch computes the gradients of embeddings.
        _extension.learn_sizes(lambda: aten.embedding_dense_backward(x, index.expand(2), 5, -1, False))
        # If this fails, torch serves calls that pass arguments on the stack, and torch_scatter its own
        # operators.
        _extension.learn_boxed(gather, x._cdata, entries._cdata)
        _extension.learn_boxed_texts(reduce)
        _extension.find_autograd_kernels(lambda: torch.trace(x))
        for kernels in _SERVED:
            kernels.prepare(
                [_counted(_SERVED[kernels][name.removeprefix("aten::")]) for name in kernels.names()]
            )
    return is_ready


def _set_bounds(bounds: thresholds.Thresholds) -> None:
    _extension.set_kernel_bounds(
        bounds.index_entries,
        bounds.index_numbers,
        bounds.product_work,
        bounds.sparse_numbers,
        bounds.sorted_numbers,
    )


def _counted(served: Served) -> Callable[..., Any]:
    """Return the function for an operator; its calls are counted under the operator's name."""

    def serve(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        # A torch mode of the user sees the operator that was called, and not the operators that are called
        # here.
        with _without_torch_functions():
            out = served.body(*args)
        if counting.live:
            count(served.name, out is not None)
        return out

    return serve
