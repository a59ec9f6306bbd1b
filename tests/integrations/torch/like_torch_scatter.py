"""The conventions of torch_scatter in plain torch, for tests where it is not installed.

As torch_scatter does, it registers operators that are one kernel for all devices, above autograd, which its
functions call.
"""

from typing import Any

import torch
from torch import Tensor

# Whose code the kernels are, which torch_scatter's are of its own library.
LIBRARY = "libtorch_python"
_LIBRARY = torch.library.Library("torch_scatter", "FRAGMENT")
_operators: Any = torch.ops.torch_scatter


def broadcast(index: Tensor, src: Tensor, dim: int) -> Tensor:
    dim = dim % src.dim()
    if index.dim() == 1:
        index = index.view(*[1] * dim, -1)
    return index.view(*index.shape, *[1] * (src.dim() - index.dim())).expand(src.shape)


def rows_of(index: Tensor, dim_size: int | None) -> int:
    return int(index.max()) + 1 if dim_size is None else dim_size


def summed(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> Tensor:
    index = broadcast(index, src, dim)
    if out is None:
        size = list(src.shape)
        size[dim] = rows_of(index, dim_size)
        out = src.new_zeros(size)
    return out.scatter_add_(dim, index, src)


def averaged(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> Tensor:
    total = summed(src, index, dim, out, dim_size)
    return total / summed(torch.ones_like(src), index, dim, None, total.size(dim)).clamp(min=1)


def best(src: Tensor, index: Tensor, dim: int, dim_size: int | None, sign: int) -> tuple[Tensor, Tensor]:
    """A row begins with the number that an entry has to beat; nothing that does is 0, at entry E."""
    index = broadcast(index, src, dim).transpose(0, dim).flatten(1)[:, 0]
    src = src.transpose(0, dim)
    numbers = sign * src.detach()
    bounds = numbers.new_full((rows_of(index, dim_size), *src.shape[1:]), torch.finfo(src.dtype).min)
    entry = torch.full_like(bounds, src.size(0), dtype=torch.int64)
    for e, row in enumerate(index.tolist()):
        wins = numbers[e] > bounds[row]
        bounds[row] = torch.where(wins, numbers[e], bounds[row])
        entry[row] = torch.where(wins, e, entry[row])
    extrema = torch.cat([src, src.new_zeros(1, *src.shape[1:])]).gather(0, entry)
    return extrema.transpose(0, dim).contiguous(), entry.transpose(0, dim).contiguous()


def between(src: Tensor, indptr: Tensor) -> tuple[Tensor, Tensor]:
    return src[int(indptr[0]) : int(indptr[-1])], torch.repeat_interleave(indptr.diff())


def scatter_sum(src, index, dim=-1, out=None, dim_size=None):
    return summed(src, index, dim, out, dim_size)


def scatter_add(src, index, dim=-1, out=None, dim_size=None):
    return scatter_sum(src, index, dim, out, dim_size)


def scatter_mean(src, index, dim=-1, out=None, dim_size=None):
    return averaged(src, index, dim, out, dim_size)


def scatter_max(src, index, dim=-1, out=None, dim_size=None):
    return _operators.scatter_max(src, index, dim, out, dim_size)


def scatter_min(src, index, dim=-1, out=None, dim_size=None):
    return _operators.scatter_min(src, index, dim, out, dim_size)


def scatter(src, index, dim=-1, out=None, dim_size=None, reduce="sum"):
    found = globals()[f"scatter_{reduce}"](src, index, dim, out, dim_size)
    return found[0] if reduce in ("max", "min") else found


def segment_coo(src, index, out=None, dim_size=None, reduce="sum"):
    return getattr(_operators, f"segment_{reduce}_coo")(src, index, out, dim_size)


def segment_csr(src, indptr, out=None, reduce="sum"):
    return getattr(_operators, f"segment_{reduce}_csr")(src, indptr, out)


def gather_coo(src, index, out=None):
    return _operators.gather_coo(src, index, out)


def gather_csr(src, indptr, out=None):
    return _operators.gather_csr(src, indptr, out)


def gathered(src: Tensor, index: Tensor) -> Tensor:
    if (index[1:] < index[:-1]).any():
        raise RuntimeError("Input mismatch")
    return src[index]


def repeated(src: Tensor, indptr: Tensor) -> Tensor:
    if src.size(0) != indptr.numel() - 1:
        raise RuntimeError("Input mismatch")
    return src[between(src, indptr)[1]]


_EXTREMUM = "(Tensor src, Tensor index, int dim, Tensor? out, int? dim_size) -> (Tensor, Tensor)"
_COO = "(Tensor src, Tensor index, Tensor? out, int? dim_size) -> Tensor"
_CSR = "(Tensor src, Tensor indptr, Tensor? out) -> Tensor"
_GATHER = "(Tensor src, Tensor index, Tensor? out) -> Tensor"
_OPERATORS: dict[str, tuple[str, Any]] = {
    "scatter_max": (_EXTREMUM, lambda src, index, dim, out, size: best(src, index, dim, size, 1)),
    "scatter_min": (_EXTREMUM, lambda src, index, dim, out, size: best(src, index, dim, size, -1)),
    "segment_sum_coo": (_COO, lambda src, index, out, size: summed(src, index, 0, out, size)),
    "segment_mean_coo": (_COO, lambda src, index, out, size: averaged(src, index, 0, out, size)),
    "segment_sum_csr": (_CSR, lambda src, ptr, out: summed(*between(src, ptr), 0, out, ptr.numel() - 1)),
    "segment_mean_csr": (_CSR, lambda src, ptr, out: averaged(*between(src, ptr), 0, out, ptr.numel() - 1)),
    "gather_coo": (_GATHER, lambda src, index, out: gathered(src, index)),
    "gather_csr": (_GATHER, lambda src, indptr, out: repeated(src, indptr)),
}
for name, (schema, body) in _OPERATORS.items():
    _LIBRARY.define(name + schema)
    _LIBRARY.impl(name, body, "CompositeImplicitAutograd")
