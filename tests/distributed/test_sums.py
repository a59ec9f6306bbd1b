"""Sums over the rows of all processes, where there is one process."""

import pytest
import torch
import torch.distributed as dist

from onehop.distributed import add_gradients
from onehop.distributed.sums import AllRows, sum_over_processes
from onehop.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("one_process")

X = torch.arange(12, dtype=torch.float32).view(6, 2)
BATCH = torch.tensor([0, 0, 1, 1, 1, 3])


def test_one_example():
    rows = AllRows(None, X)
    assert not rows.batched
    assert rows.examples == 1
    assert torch.equal(rows.counts, torch.tensor([[6.0]], dtype=torch.float64))
    assert torch.equal(rows.sum(X), torch.tensor([[30.0, 36.0]], dtype=torch.float64))
    assert torch.equal(rows.mean(X), torch.tensor([[5.0, 6.0]], dtype=torch.float64))
    assert torch.equal(
        rows.of_rows(torch.tensor([[0.5, 1.5]], dtype=torch.float64)), torch.tensor([[0.5, 1.5]])
    )


def test_several_examples():
    rows = AllRows(None, X, BATCH)
    assert rows.batched
    assert rows.examples == 4
    expected = torch.zeros(4, 2, dtype=torch.float64)
    for row, example in zip(X.double(), BATCH.tolist(), strict=True):
        expected[example] += row
    assert torch.equal(rows.counts, torch.tensor([[2.0], [3.0], [0.0], [1.0]], dtype=torch.float64))
    assert torch.equal(rows.sum(X), expected)
    # The mean over no rows is 0, not NaN.
    assert torch.equal(rows.mean(X), expected / torch.tensor([[2.0], [3.0], [1.0], [1.0]]))
    values = torch.arange(4, dtype=torch.float64).view(4, 1)
    assert torch.equal(rows.of_rows(values), BATCH.view(6, 1).float())


def test_more_examples_than_rows_name():
    assert AllRows(None, X, BATCH, 7).examples == 7


@pytest.mark.parametrize("size", [3, 0])
def test_fewer_examples_are_refused(size):
    with pytest.raises(ArgumentError, match=r"batch_size: .* at least 4, got"):
        AllRows(None, X, BATCH, size)


def test_sums_of_small_floats_are_exact():
    x = torch.full((6, 1), 0.1, dtype=torch.bfloat16)
    assert AllRows(None, x).sum(x).item() == 6 * x[0].double().item()


def test_the_gradient_of_a_sum():
    values = X[:, :1].t().clone().requires_grad_()
    out = sum_over_processes(values)
    assert out.data_ptr() != values.data_ptr()
    (out * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).sum().backward()
    assert torch.equal(values.grad, torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]))


def test_gradients_become_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes with the same gradients: what the message brings back is three times each."""
    monkeypatch.setattr(dist, "all_reduce", lambda values, group: values.mul_(3))
    weight, bias = (
        torch.ones(2, 3, requires_grad=True),
        torch.ones(2, dtype=torch.float64, requires_grad=True),
    )
    unused, fixed = torch.ones(4, requires_grad=True), torch.ones(5)
    weight.grad, bias.grad = X[:2].repeat(1, 2)[:, :3].clone(), torch.tensor([4.0, 5.0], dtype=torch.float64)
    kept = weight.grad
    add_gradients([weight, fixed, bias, unused])
    assert weight.grad is kept
    assert weight.grad.tolist() == [[0.0, 3.0, 0.0], [6.0, 9.0, 6.0]]
    assert bias.grad.tolist() == [12.0, 15.0]
    assert unused.grad is not None
    assert unused.grad.tolist() == [0.0] * 4
    assert fixed.grad is None
