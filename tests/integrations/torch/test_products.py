"""Products of linear steps on plain tensors: libraries, rows that are added, and denormal numbers."""

import pytest
import torch
import torch.nn.functional as F

from onehop.kernels.products import BLOCKS, FORWARD, ONEDNN, TO_INPUT, TO_WEIGHT, TORCH, _of_onednn, libraries
from onehop.ops.linear import flushed, is_large, multiply
from onehop.tuner import products
from tests.integrations.same import assert_same
from tests.integrations.torch.test_linear import LIBRARIES, everything, operands, patched as patched


@pytest.mark.parametrize("library", sorted(libraries(FORWARD)))
def test_rows_are_added(library):
    x, weight = (t.detach() for t in operands(40, 6, 5, bias=False))
    added = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    kept = added.clone()
    with products.forced(library):
        out = multiply(FORWARD, x, weight, added)
    torch.testing.assert_close(out, x @ weight.t() + added)
    assert torch.equal(added, kept)


@pytest.mark.parametrize(("rows", "blocks"), [(1, [1]), (7, [4, 2, 1]), (9, [8, 1]), (24, [8, 8, 8])])
def test_blocks_of_few_sizes_divide_a_gradient_to_a_weight(rows, blocks, bounds):
    # oneDNN takes part even where there are fewer rows than a block, and generates code for few sizes.
    bounds(product_block_rows=8)
    sizes = []

    def linear(left, right, bias, *_):
        sizes.append(left.size(1))
        return F.linear(left, right, bias)

    product = _of_onednn(TO_WEIGHT, linear, None)
    grad, x = (torch.randn(rows, n, generator=torch.Generator().manual_seed(n)) for n in (3, 5))
    torch.testing.assert_close(product(grad, x, None), grad.t() @ x)
    assert sizes == blocks


def smeared(rows, centres=50):
    """Distances smeared by Gaussians, as SchNet's: one number in 30 is denormal."""
    distances = 10 * torch.rand(rows, 1, generator=torch.Generator().manual_seed(2))
    return torch.exp(-12.5 * (distances - torch.linspace(0, 10, centres)).square())


def is_denormal(x):
    return (x != 0) & (x.abs() < torch.finfo(torch.float32).tiny)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("rows", [40, 70_000])
def test_denormal_numbers_become_0(rows, sign):
    x = sign * smeared(rows)
    x[3, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    kept, small = x.clone(), is_denormal(x)
    assert small.any()
    found = flushed(x)
    assert torch.equal(x.view(torch.int32), kept.view(torch.int32))
    assert torch.equal(found.view(torch.int32), torch.where(small, 0 * x, x).view(torch.int32))


@pytest.mark.parametrize("column", range(3))
def test_no_column_is_left_out_of_the_sample(column):
    x = torch.ones(100_000, 3)
    x[:, column] = 1e-39
    assert not is_denormal(flushed(x)).any()


def test_other_operands_stay():
    for x in (torch.ones(30, 4), torch.zeros(3, 3), torch.full((4, 4), 1e-39), torch.ones(0, 4)):
        assert flushed(x) is x
    zeros = torch._efficientzerotensor((4, 4))
    assert flushed(zeros) is zeros
    # Beside numbers that are all this small, denormals matter.
    x = 1e-20 * smeared(40)
    assert flushed(x) is x


@pytest.mark.parametrize("library", LIBRARIES)
def test_gradients_with_denormal_numbers(library, patched):
    given = [smeared(513).requires_grad_(), *operands(1, 50, 31)[1:]]
    with products.forced(library):
        found = everything(F.linear, given)
    expected = everything(F.linear, [each.detach().double().requires_grad_() for each in given])
    assert_same([each.double() for each in found], expected, 1e-4, 1e-4)


def test_names_of_libraries():
    # A release of torch without oneDNN's product must be noticed here.
    assert list(libraries(FORWARD)) == list(libraries(TO_INPUT)) == [TORCH, ONEDNN]
    assert {TORCH, BLOCKS, ONEDNN} <= set(libraries(TO_WEIGHT))


@pytest.mark.parametrize("kind", [FORWARD, TO_INPUT, TO_WEIGHT])
def test_what_may_run_elsewhere(kind, bounds):
    bounds(product_work=64)
    left, right = (torch.ones(4, 4) for _ in range(2))
    assert is_large(kind, left, right)
    assert not is_large(kind, torch.ones(3, 4), right[:3] if kind == TO_WEIGHT else right)
    assert not is_large(kind, left.t()[:, :4].t().mT, right)
    assert not is_large(kind, left, right.t())
    assert not is_large(kind, left.double(), right.double())
    assert not is_large(kind, torch._neg_view(left), right)
    assert not is_large(kind, left, torch._neg_view(right))
    bounds(product_work=0)
    assert not is_large(kind, torch.ones(0, 4), torch.ones(0, 4) if kind == TO_WEIGHT else right)
