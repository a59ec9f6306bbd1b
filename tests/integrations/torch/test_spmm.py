"""torch_sparse's products under the patch, by its operators: sums and means, values or none, gradients."""

import importlib
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import onehop
from onehop import thresholds
from onehop.integrations import rows
from onehop.integrations.torch import kernels
from tests.integrations.same import assert_same, outcome

N, K, F, ENTRIES = 13, 9, 5, 40


@pytest.fixture
def operators(monkeypatch) -> Any:
    """torch_sparse's operators, or replacements with the same schemas if it is not installed."""
    try:
        importlib.import_module("torch_sparse")
    except ImportError:
        # Imported here, because it registers operators.
        replacement = importlib.import_module("tests.integrations.torch.like_torch_sparse")
        monkeypatch.setitem(sys.modules, "torch_sparse", replacement)
        monkeypatch.setattr(kernels, "library_of", {"torch_sparse": replacement.LIBRARY}.get)
    return torch.ops.torch_sparse


def arrays() -> tuple[Tensor, Tensor, Tensor]:
    """The rows, their bounds, and the columns; the last row and column have no entry."""
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(0, N - 1, (ENTRIES,), generator=generator).sort().values
    col = torch.randint(0, K - 1, (ENTRIES,), generator=generator)
    return row, torch.searchsorted(row, torch.arange(N + 1)), col


def product(operators: Any, reduce: str, value: Tensor | None, x: Tensor) -> Tensor:
    row, rowptr, col = arrays()
    order = (col * N + row).argsort(stable=True)
    colptr = torch.searchsorted(col.sort().values, torch.arange(K + 1))
    if reduce == "sum":
        return operators.spmm_sum(row, rowptr, col, value, colptr, order, x)
    return operators.spmm_mean(row, rowptr, col, value, rowptr.diff(), colptr, order, x)


@pytest.mark.parametrize("needs", ["", "x", "value", "x value"])
@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_products(operators, reduce, dtype, valued, needs):
    def run() -> Any:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(K, F, generator=generator).to(dtype).requires_grad_("x" in needs)
        value = torch.randn(ENTRIES, generator=generator).to(dtype) if valued else None
        asked = [x] if "x" in needs else []
        if value is not None and "value" in needs:
            asked.append(value.requires_grad_())
        out = product(operators, reduce, value, x)
        return out.detach(), torch.autograd.grad(out.square().sum(), asked) if asked else None

    expected = run()
    with onehop.patch(only="torch"), thresholds.lifted(), rows.counted(everywhere=True) as counts:
        assert_same(run(), expected, 1e-5, 1e-5)
    assert counts[f"torch_sparse.spmm_{reduce}", True]
    assert_same(run(), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("what", ["16 bits", "a batch", "two dtypes", "no entries", "inference mode"])
def test_what_stays_the_packages(operators, what):
    def run() -> Any:
        x, value = torch.ones(K, F), torch.ones(ENTRIES)
        if what == "16 bits":
            x, value = x.bfloat16(), value.bfloat16()
        if what == "a batch":
            x = x.expand(2, K, F).contiguous()
        if what == "two dtypes":
            value = value.double()
        if what == "no entries":
            nothing = torch.zeros(0, dtype=torch.int64)
            return operators.spmm_sum(None, torch.zeros(N + 1).long(), nothing, None, None, None, x)
        if what == "inference mode":
            with torch.inference_mode():
                return product(operators, "sum", value, x).clone()
        return product(operators, "sum", value, x)

    expected = outcome(run)
    with onehop.patch(only="torch"), thresholds.lifted():
        assert_same(outcome(run), expected, 1e-5, 1e-5)


def test_small_products_stay_the_packages(operators):
    with onehop.patch(only="torch"), rows.counted(everywhere=True) as counts:
        product(operators, "sum", None, torch.ones(K, F))
    assert not any(counts.values())


def test_numbers_out_of_range_are_not_read(operators):
    _, rowptr, col = arrays()
    col[3] = 99
    with onehop.patch(only="torch"), thresholds.lifted(), pytest.raises(onehop.IndexRangeError, match="99"):
        operators.spmm_sum(None, rowptr, col, None, None, None, torch.ones(K, F))
