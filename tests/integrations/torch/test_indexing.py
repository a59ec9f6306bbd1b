"""torch's own gathers and scatters under the patch: torch's results and gradients."""

import gc

import pytest
import torch
from torch import Tensor

import onehop
from onehop import native, thresholds
from tests.integrations.torch.indices import (
    ANY,
    EDGES,
    ENTRIES,
    LENGTHS,
    ODD,
    ROWS,
    SORTED,
    _forgets as _forgets,
    entries,
    numbers,
    served as served,
)
from tests.pairs import pairwise


def behind(x: Tensor, dim: int, *key) -> Tensor:
    return x[(*[slice(None)] * dim, *key)]


GATHERS = {
    "x[i]": lambda x, i, dim: behind(x, dim, i) if dim else x[i],
    "x[i,]": lambda x, i, dim: behind(x, dim, i),
    "x[i, :]": lambda x, i, dim: behind(x, dim, i, *[slice(None)] * (x.dim() - dim - 1)),
    "x[i, ...]": lambda x, i, dim: behind(x, dim, i, ...),
    "x[..., i, :]": lambda x, i, dim: x[(..., i, *[slice(None)] * (x.dim() - dim - 1))],
    "x[a matrix]": lambda x, i, dim: behind(x, dim, i.contiguous().view(6, 10)),
    "x[two rows of edges]": lambda x, i, dim: behind(x, dim, EDGES),
    "method": lambda x, i, dim: x.index_select(dim, i),
    "from the end": lambda x, i, dim: x.index_select(dim - x.dim(), i),
    "by name": lambda x, i, dim: x.index_select(dim=dim, index=i),
    "function": lambda x, i, dim: torch.index_select(x, dim, i),
    "gather": lambda x, i, dim: x.gather(dim, entries(i, x, dim)),
    "gather function": lambda x, i, dim: torch.gather(x, dim, entries(i, x, dim)),
}
SCATTERS = {
    "index_add": lambda x, i, v, dim: x.index_add(dim, i, v),
    "index_add from the end": lambda x, i, v, dim: x.index_add(dim - x.dim(), i, v),
    "index_add function": lambda x, i, v, dim: torch.index_add(x, dim, i, v),
    "index_add by name": lambda x, i, v, dim: x.index_add(dim=dim, index=i, source=v),
    "index_add_": lambda x, i, v, dim: x.mul(1).index_add_(dim, i, v),
    "scatter_add": lambda x, i, v, dim: x.scatter_add(dim, entries(i, v, dim), v),
    "scatter_add function": lambda x, i, v, dim: torch.scatter_add(x, dim, entries(i, v, dim), v),
    "scatter_add_": lambda x, i, v, dim: x.mul(1).scatter_add_(dim, entries(i, v, dim), v),
    **{
        f"scatter_reduce{'_' * in_place} {reduce} {'with' if own else 'without'} its own": (
            lambda x, i, v, dim, reduce=reduce, own=own, in_place=in_place: getattr(
                x.mul(1), f"scatter_reduce{'_' * in_place}"
            )(dim, entries(i, v, dim), v, reduce=reduce, include_self=own)
        )
        for reduce in ("sum", "mean", "amax", "amin")
        for own in (True, False)
        for in_place in (True, False)
    },
}
INDICES = {
    "any order": ANY,
    "sorted": SORTED,
    "int32": ANY.int(),
    "a row of edges": EDGES[1],
    "strided": torch.stack([ANY, SORTED], 1)[:, 0],
}
# The dimension of the rows, and all others.
SHAPES = {
    "numbers": (0, ()),
    "matrix": (0, (4,)),
    "cube": (0, (2, 3)),
    "columns": (1, (4,)),
    "in the middle": (1, (2, 3)),
    "last": (2, (2, 3)),
}


def operand(shape: str, rows: int, seed: int = 1) -> Tensor:
    dim, others = SHAPES[shape]
    return numbers(*others[:dim], rows, *others[dim:], seed=seed)


def outcome(function, *operands: Tensor) -> list[Tensor]:
    """The result, and all gradients of operands that need one."""
    leaves = [each.detach().clone().requires_grad_(each.requires_grad) for each in operands]
    out = function(*leaves)
    wanted = [each for each in leaves if each.requires_grad]
    grads = torch.autograd.grad((out * out.detach().cos()).sum(), wanted) if wanted else ()
    return [out.detach(), *grads]


def same(function, *operands: Tensor) -> None:
    """A function gives the same under the patch, strides included."""
    expected = outcome(function, *operands)
    with onehop.patch(), thresholds.lifted():
        found = outcome(function, *operands)
    assert [each.stride() for each in found] == [each.stride() for each in expected]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


@pairwise(name=list(GATHERS), index=list(INDICES), shape=list(SHAPES), needs=[True, False])
def test_gathers(name, index, shape, needs, served):
    i, x, dim = INDICES[index], operand(shape, ROWS).requires_grad_(needs), SHAPES[shape][0]
    if index == "int32" and "gather" in name:
        return
    same(lambda x: GATHERS[name](x, i, dim), x)
    assert "gathered" in served


TRUE_ENTRIES = {
    "some": ODD,
    "all": ODD | True,
    "none": ODD & False,
    "strided": torch.stack([ODD, ~ODD], 1)[:, 0],
    "other bytes than 1": (ODD.to(torch.uint8) * 2).view(torch.bool),
}
MASKED = {
    "x[m]": lambda x, m, dim: behind(x, dim, m) if dim else x[m],
    "x[m, ...]": lambda x, m, dim: behind(x, dim, m, ...),
    "x[..., m, :]": lambda x, m, dim: x[(..., m, *[slice(None)] * (x.dim() - dim - 1))],
    "of all dimensions": lambda x, m, dim: x[entries(m, x, dim).expand(x.shape)],
    "of the last ones": lambda x, m, dim: (
        x[..., m] if dim == x.dim() - 1 else behind(x, dim, m[:, None].expand(x.shape[dim : dim + 2]))
    ),
    "of the last ones, behind an ellipsis": lambda x, m, dim: x[
        (..., m.view(-1, *[1] * (x.dim() - dim - 1)).expand(x.shape[dim:]))
    ],
}


@pairwise(name=list(MASKED), mask=list(TRUE_ENTRIES), shape=list(SHAPES), needs=[True, False])
def test_masks(name, mask, shape, needs, served):
    m, x, dim = TRUE_ENTRIES[mask], operand(shape, ROWS).requires_grad_(needs), SHAPES[shape][0]
    same(lambda x: MASKED[name](x, m, dim), x)
    assert "gathered" in served


@pytest.mark.parametrize("layout", ["turned", "expanded"])
def test_gradients_of_masked_rows_need_not_be_contiguous(layout, served):
    # Small, so that the C library writes to memory that a copy has left.
    x, mask = torch.randn(33, 4, requires_grad=True), torch.arange(33) % 3 == 1
    given = torch.randn(4, 11).t()
    grad = given if layout == "turned" else given[:, :1].expand(given.shape)
    (expected,) = torch.autograd.grad(x[mask], x, grad)
    with onehop.patch(), thresholds.lifted():
        (found,) = torch.autograd.grad(x[mask], x, grad)
    assert torch.equal(found, expected)
    assert "gathered" in served


@pytest.mark.parametrize("shape", [(6,), (6, 2), (2, 6, 2)], ids=str)
def test_hessians_of_masked_rows_in_one_batch(shape, served):
    x, mask = torch.randn(shape), torch.arange(6) % 3 == 1

    def function(x: Tensor) -> Tensor:
        return (x[:, mask] if len(shape) == 3 else x[mask]).pow(3).sum()

    expected = torch.autograd.functional.hessian(function, x)
    with onehop.patch(), thresholds.lifted():
        found = torch.autograd.functional.hessian(function, x, vectorize=True)
    torch.testing.assert_close(found, expected)
    assert "gathered" in served


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.float32, torch.float64, torch.complex128, torch.int64, torch.uint8, torch.bool],
    ids=str,
)
@pytest.mark.parametrize("columns", [1, 3, 70])
@pytest.mark.parametrize("rows", [1, 1023, 1024, 1025, 5000])
def test_masks_of_many_rows(rows, columns, dtype, served):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(2, rows, columns, generator=generator).mul(3).abs().to(dtype)
    x.requires_grad_(x.is_floating_point() or x.is_complex())
    mask = torch.rand(rows, generator=generator) < 0.4
    mask[: rows // 3] = False

    def run(x):
        out = x[:, mask]
        grads = torch.autograd.grad(out, x, out.detach().cos()) if x.requires_grad else ()
        return [out.detach(), *grads]

    expected = run(x)
    with onehop.patch(), thresholds.lifted():
        found = run(x)
    assert all(map(torch.equal, found, expected))
    assert "gathered" in served


@pairwise(
    name=list(SCATTERS),
    index=list(INDICES),
    shape=list(SHAPES),
    needs=["none", "values", "both"],
    zero=[True, False],
)
def test_scatters(name, index, shape, needs, zero, served):
    i, values, dim = INDICES[index], operand(shape, ENTRIES), SHAPES[shape][0]
    x = operand(shape, ROWS, seed=2) * (0 if zero else 1)
    if index == "int32" and "scatter" in name:
        return
    x.requires_grad_(needs == "both")
    values.requires_grad_(needs != "none")
    same(lambda x, v: SCATTERS[name](x, i, v, dim), x, values)
    assert "scattered" in served


SEGMENTS = {
    "lengths": {"lengths": LENGTHS},
    "offsets": {"offsets": torch.nn.functional.pad(LENGTHS.cumsum(0), (1, 0))},
    "int32": {"lengths": LENGTHS.int()},
    "strided": {"lengths": torch.stack([LENGTHS, LENGTHS], 1)[:, 0], "unsafe": True},
}


@pairwise(
    reduce=["sum", "mean", "max", "min"],
    shape=["numbers", "matrix", "cube"],
    segments=list(SEGMENTS),
    needs=[True, False],
)
def test_segments(reduce, shape, segments, needs, served):
    values, given = operand(shape, ENTRIES).requires_grad_(needs), SEGMENTS[segments]
    values.data[7] = torch.nan
    same(lambda v: torch.segment_reduce(v, reduce, **given).nan_to_num(7, 8, 9), values)
    assert "scattered" in served


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [each for each in SCATTERS if "own" not in each or " with its" in each])
def test_16_bits_are_rounded_once(name, dtype, served):
    generator = torch.Generator().manual_seed(3)
    x, values = (torch.randn(rows, 4, generator=generator).to(dtype) for rows in (ROWS, ENTRIES))
    expected = SCATTERS[name](x.double(), ANY, values.double(), 0).to(dtype)
    with onehop.patch(), thresholds.lifted():
        found = SCATTERS[name](x, ANY, values, 0)
    # Adding up in float32 may cross a bound between two roundings, which is rare.
    assert (found != expected).sum() <= 1
    assert found.dtype is dtype
    assert "scattered" in served


@pytest.mark.parametrize(
    "name",
    [
        "x[i]",
        "gather",
        "index_add",
        "scatter_add",
        "scatter_reduce mean with its own",
        "scatter_reduce mean without its own",
        "scatter_reduce amax without its own",
    ],
)
def test_results_are_freed_with_what_their_backward_pass_keeps(name, served):
    width = 1 << 14  # results of a mebibyte, which the pool counts

    def once() -> int:
        if name in GATHERS:
            GATHERS[name](numbers(ROWS, width).requires_grad_(), ANY, 0).sum().backward()
        else:
            values = numbers(ENTRIES, width).requires_grad_()
            SCATTERS[name](torch.zeros(ROWS, width, dtype=values.dtype), ANY, values, 0).sum().backward()
        gc.collect()
        in_use: int = native.extension.pool_info()["in_use_bytes"]
        return in_use

    with onehop.patch(), thresholds.lifted():
        once()
        assert once() == once()
    assert served
