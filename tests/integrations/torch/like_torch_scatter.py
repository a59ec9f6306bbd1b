"""The conventions of torch_scatter in plain torch, for tests where it is not installed."""

import torch
from torch import Tensor


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


def first_of_the_best(src: Tensor, index: Tensor, dim: int, dim_size: int | None, sign: int):
    """A row begins with the number that an entry has to beat; nothing that does is 0, at entry E."""
    index = broadcast(index, src, dim).transpose(0, dim).flatten(1)[:, 0]
    src = src.transpose(0, dim)
    numbers = sign * src.detach()
    best = numbers.new_full((rows_of(index, dim_size), *src.shape[1:]), torch.finfo(src.dtype).min)
    entry = torch.full_like(best, src.size(0), dtype=torch.int64)
    for e, row in enumerate(index.tolist()):
        wins = numbers[e] > best[row]
        best[row] = torch.where(wins, numbers[e], best[row])
        entry[row] = torch.where(wins, e, entry[row])
    found = torch.cat([src, src.new_zeros(1, *src.shape[1:])]).gather(0, entry)
    return found.transpose(0, dim), entry.transpose(0, dim)


def between(src: Tensor, indptr: Tensor) -> tuple[Tensor, Tensor]:
    return src[int(indptr[0]) : int(indptr[-1])], torch.repeat_interleave(indptr.diff())


def scatter_sum(src, index, dim=-1, out=None, dim_size=None):
    return summed(src, index, dim, out, dim_size)


def scatter_add(src, index, dim=-1, out=None, dim_size=None):
    return scatter_sum(src, index, dim, out, dim_size)


def scatter_mean(src, index, dim=-1, out=None, dim_size=None):
    return averaged(src, index, dim, out, dim_size)


def scatter_max(src, index, dim=-1, out=None, dim_size=None):
    return first_of_the_best(src, index, dim, dim_size, 1)


def scatter_min(src, index, dim=-1, out=None, dim_size=None):
    return first_of_the_best(src, index, dim, dim_size, -1)


def scatter(src, index, dim=-1, out=None, dim_size=None, reduce="sum"):
    found = globals()[f"scatter_{reduce}"](src, index, dim, out, dim_size)
    return found[0] if reduce in ("max", "min") else found


def segment_sum_coo(src, index, out=None, dim_size=None):
    return summed(src, index, 0, out, dim_size)


def segment_mean_coo(src, index, out=None, dim_size=None):
    return averaged(src, index, 0, out, dim_size)


def segment_coo(src, index, out=None, dim_size=None, reduce="sum"):
    return globals()[f"segment_{reduce}_coo"](src, index, out, dim_size)


def segment_sum_csr(src, indptr, out=None):
    return summed(*between(src, indptr), 0, out, indptr.numel() - 1)


def segment_mean_csr(src, indptr, out=None):
    return averaged(*between(src, indptr), 0, out, indptr.numel() - 1)


def segment_csr(src, indptr, out=None, reduce="sum"):
    return globals()[f"segment_{reduce}_csr"](src, indptr, out)


def gather_coo(src, index, out=None):
    if (index[1:] < index[:-1]).any():
        raise RuntimeError("Input mismatch")
    return src[index]


def gather_csr(src, indptr, out=None):
    if src.size(0) != indptr.numel() - 1:
        raise RuntimeError("Input mismatch")
    return src[between(src, indptr)[1]]
