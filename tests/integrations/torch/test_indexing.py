"""torch's own gathers and scatters under the patch: torch's results and gradients."""

import gc

import pytest
import torch
from torch import Tensor

import onehop
from onehop import native, thresholds
from tests.integrations.torch.indices import (
    ANY,
    ENTRIES,
    ROWS,
    _forgets as _forgets,
    entries,
    numbers,
    served as served,
)

SCATTERS = {
    "index_add": lambda x, i, v: x.index_add(0, i, v),
    "index_add from the end": lambda x, i, v: x.index_add(-x.dim(), i, v),
    "index_add function": lambda x, i, v: torch.index_add(x, 0, i, v),
    "index_add_": lambda x, i, v: x.mul(1).index_add_(0, i, v),
    "scatter_add": lambda x, i, v: x.scatter_add(0, entries(i, v), v),
    "scatter_add_": lambda x, i, v: x.mul(1).scatter_add_(0, entries(i, v), v),
    **{
        f"scatter_reduce{'_' * in_place} {reduce}": lambda x, i, v, reduce=reduce, in_place=in_place: getattr(
            x.mul(1), f"scatter_reduce{'_' * in_place}"
        )(0, entries(i, v), v, reduce=reduce)
        for reduce in ("sum", "mean", "amax", "amin")
        for in_place in (True, False)
    },
}


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SCATTERS)
def test_16_bits_are_rounded_once(name, dtype, served):
    generator = torch.Generator().manual_seed(3)
    x, values = (torch.randn(rows, 4, generator=generator).to(dtype) for rows in (ROWS, ENTRIES))
    expected = SCATTERS[name](x.double(), ANY, values.double()).to(dtype)
    with onehop.patch(), thresholds.lifted():
        found = SCATTERS[name](x, ANY, values)
    # Adding up in float32 may cross a bound between two roundings, which is rare.
    assert (found != expected).sum() <= 1
    assert found.dtype is dtype
    assert "scattered" in served


FREED = {
    "x[i]": lambda x, i, v: x[i],
    "gather": lambda x, i, v: x.gather(0, entries(i, v)),
    "index_add": lambda x, i, v: torch.zeros_like(x).index_add(0, i, v),
    "scatter_add": lambda x, i, v: torch.zeros_like(x).scatter_add(0, entries(i, v), v),
    **{
        f"{reduce}, {own}": lambda x, i, v, reduce=reduce, own=own: torch.zeros_like(x).scatter_reduce(
            0, entries(i, v), v, reduce, include_self=own
        )
        for reduce, own in (("mean", True), ("mean", False), ("amax", False))
    },
}


@pytest.mark.parametrize("name", FREED)
def test_results_are_freed_with_what_their_backward_pass_keeps(name, served):
    width = 1 << 14  # results of a mebibyte, which the pool counts

    def once() -> int:
        given = [numbers(rows, width).requires_grad_() for rows in (ROWS, ENTRIES)]
        FREED[name](given[0], ANY, given[1]).sum().backward()
        del given
        gc.collect()
        in_use: int = native.extension.pool_info()["in_use_bytes"]
        return in_use

    with onehop.patch(), thresholds.lifted():
        once()
        assert once() == once()
    assert served
