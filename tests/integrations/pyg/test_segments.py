"""``segment``, and ``softmax`` between bounds, as models call them themselves, against PyG."""

from collections.abc import Callable

import pytest
import torch
import torch_geometric.utils as utils
from torch import Tensor
from torch_geometric.nn import aggr

import onehop

ROWS, WIDTH = 60, 5
REDUCTIONS = ["sum", "mean", "max", "min"]

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture(autouse=True)
def _at_every_size(bounds) -> None:
    bounds(direct_numbers=0)


@pytest.fixture
def ptr() -> Tensor:
    """[9]: some segments are empty, the first and the last among them."""
    return torch.tensor([0, 0, 3, 20, 20, 21, 50, 60, 60])


@pytest.fixture
def x() -> Tensor:
    """[60, 5], with extrema that tie, some of them at 0."""
    return torch.randint(-2, 3, (ROWS, WIDTH)).double()


def results(function: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """The output and the gradient."""
    x = x.clone().requires_grad_()
    out = function(x)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), x)]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, equal_nan=True)


def entries() -> int:
    return onehop.cache_info().entries


CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda x, ptr: utils.segment(x, ptr),
    "mean": lambda x, ptr: utils.segment(x, ptr, "mean"),
    "heads": lambda x, ptr: utils.segment(x.view(ROWS, WIDTH, 1).expand(-1, -1, 3), ptr),
    "sum module": lambda x, ptr: aggr.SumAggregation()(x, ptr=ptr),
    "mean module": lambda x, ptr: aggr.MeanAggregation()(x, ptr=ptr),
    "softmax": lambda x, ptr: utils.softmax(x, ptr=ptr),
    "softmax of numbers": lambda x, ptr: utils.softmax(x[:, 0], ptr=ptr),
    "softmax, with an index": lambda x, ptr: utils.softmax(x, torch.zeros(ROWS, dtype=torch.long), ptr),
    "softmax module": lambda x, ptr: aggr.SoftmaxAggregation(t=0.5)(x, ptr=ptr),
}


@pytest.mark.parametrize("name", CALLS)
def test_rows_between_bounds(name, x, ptr):
    expected = results(lambda x: CALLS[name](x, ptr), x)
    with onehop.patch():
        for _ in range(3):
            assert_same(results(lambda x: CALLS[name](x, ptr), x), expected)
        assert entries() == 1
        assert onehop.cache_info().bytes > 0


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extrema(reduce, x, ptr):
    def call(x: Tensor) -> Tensor:
        return utils.segment(x, ptr, reduce)

    expected = results(call, x)
    with onehop.patch():
        # Ties at 0 have other gradients than scatter's: PyG's own code runs.
        for one, other in zip(results(call, x), expected, strict=True):
            assert torch.equal(one, other)
        assert entries() == 0
        torch.testing.assert_close(call(x), expected[0])
        assert entries() == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite(number, x, ptr):
    x[0:3] = number
    x[25, 1] = x[59, 0] = number
    calls = {**CALLS, **{reduce: lambda x, ptr, r=reduce: utils.segment(x, ptr, r) for reduce in REDUCTIONS}}
    for name, call in calls.items():
        expected = call(x, ptr)
        with onehop.patch():
            torch.testing.assert_close(call(x, ptr), expected, equal_nan=True, msg=name)


@pytest.mark.parametrize("write", ["in place", "data"])
def test_bounds_that_change(write, x, ptr):
    with onehop.patch():
        utils.segment(x, ptr)
        (ptr if write == "in place" else ptr.data)[2] = 7
        ours = utils.segment(x, ptr)
    torch.testing.assert_close(ours, utils.segment(x, ptr))


def test_the_same_bounds_for_other_rows(x, ptr):
    shorter = torch.tensor([0, 20, 40])
    with onehop.patch():
        utils.segment(x[:40], shorter)
        for call in (lambda: utils.segment(x, shorter), lambda: utils.softmax(x, ptr=shorter)):
            with onehop.patch().paused():
                theirs = _raised(call)
            assert _raised(call) == theirs


def _raised(call: Callable[[], Tensor]) -> str:
    try:
        return str(call().sum())
    except (RuntimeError, ImportError) as error:
        return str(error)


@pytest.mark.parametrize("wrong", ["falls", "short", "long", "columns", "reduce", "dtype"])
def test_what_pyg_reports_or_not(wrong, x, ptr):
    reduce = "median" if wrong == "reduce" else "sum"
    if wrong == "falls":
        ptr[3] = 1
    elif wrong == "short":
        ptr[-1] = 59
        ptr[-2] = 59
    elif wrong == "long":
        x = x[:50]
    elif wrong == "columns":
        ptr = ptr.view(1, -1)
    elif wrong == "dtype":
        ptr = ptr.float()
    theirs = _raised(lambda: utils.segment(x, ptr, reduce))
    with onehop.patch():
        assert _raised(lambda: utils.segment(x, ptr, reduce)) == theirs


def test_other_dtypes_contexts_and_sizes(x, ptr, bounds):
    calls = [
        lambda: utils.segment(x.bfloat16(), ptr),
        lambda: utils.segment(x[:, 0], ptr),
    ]
    for call in calls:
        expected = call()
        with onehop.patch():
            assert torch.equal(call(), expected)
            assert entries() == 0
    expected = utils.segment(x, ptr)
    with onehop.patch():
        with torch.inference_mode():
            torch.testing.assert_close(utils.segment(x, ptr), expected)
        with torch.inference_mode():
            torch.testing.assert_close(utils.segment(x, ptr + 0), expected)
    bounds(direct_numbers=1 << 20)
    onehop.clear_cache()
    with onehop.patch():
        utils.segment(x, ptr)
        assert entries() == 0
    assert not utils.segment(x, ptr)._is_view()


def test_they_are_put_back():
    before = utils.segment
    with onehop.patch():
        assert utils.segment is not before
        assert "torch_geometric.utils.segment" in onehop.patched()
    assert utils.segment is before
