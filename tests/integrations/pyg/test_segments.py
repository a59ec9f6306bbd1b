"""``segment``, and ``softmax`` between bounds, as models call them themselves, against PyG."""

from collections.abc import Callable

import pytest
import torch
import torch_geometric.utils as utils
from torch import Tensor
from torch_geometric.nn import aggr

import onehop
from tests.integrations.same import BITS, assert_same, learned, outcome, same, same_after

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
    x.requires_grad_()
    same(lambda: learned(CALLS[name](x, ptr), x), rtol=1e-12)
    assert entries() == 1
    assert onehop.cache_info().bytes > 0


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extrema(reduce, x, ptr):
    x.requires_grad_()
    # Ties at 0 have other gradients than scatter's: PyG's own code runs.
    same(lambda: learned(utils.segment(x, ptr, reduce), x), **BITS)
    assert entries() == 0
    same(torch.no_grad()(lambda: utils.segment(x, ptr, reduce)))
    assert entries() == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite(number, x, ptr):
    x[0:3] = number
    x[25, 1] = x[59, 0] = number
    calls = {**CALLS, **{reduce: lambda x, ptr, r=reduce: utils.segment(x, ptr, r) for reduce in REDUCTIONS}}
    for call in calls.values():
        same(lambda call=call: call(x, ptr), rtol=1e-7)


@pytest.mark.parametrize("write", ["in place", "data"])
def test_bounds_that_change(write, x, ptr):
    change = (ptr if write == "in place" else ptr.data)[2].fill_
    same_after(lambda: utils.segment(x, ptr), lambda: change(7))


def test_the_same_bounds_for_other_rows(x):
    shorter = torch.tensor([0, 20, 40])
    with onehop.patch():
        utils.segment(x[:40], shorter)
        for call in (lambda: utils.segment(x, shorter), lambda: utils.softmax(x, ptr=shorter)):
            with onehop.patch().paused():
                theirs = outcome(call)
            assert_same(outcome(call), theirs)


@pytest.mark.parametrize("wrong", ["falls", "short", "long", "columns", "reduce", "dtype"])
def test_what_pyg_reports_or_not(wrong, x, ptr):
    reduce = "median" if wrong == "reduce" else "sum"
    if wrong == "falls":
        ptr[3] = 1
    elif wrong == "short":
        ptr[-2:] = 59
    elif wrong == "long":
        x = x[:50]
    elif wrong == "columns":
        ptr = ptr.view(1, -1)
    elif wrong == "dtype":
        ptr = ptr.float()
    same(lambda: utils.segment(x, ptr, reduce), errors=True)


def test_other_dtypes_contexts_and_sizes(x, ptr, bounds):
    calls = [
        lambda: utils.segment(x.bfloat16(), ptr),
        lambda: utils.segment(x[:, 0], ptr),
    ]
    for call in calls:
        same(call, indexing=False, **BITS)
        assert entries() == 0
    same(torch.inference_mode()(lambda: [utils.segment(x, ptr), utils.segment(x, ptr + 0)]))
    bounds(direct_numbers=1 << 20)
    onehop.clear_cache()
    with onehop.patch(indexing=False):
        utils.segment(x, ptr)
        assert entries() == 0
    assert not utils.segment(x, ptr)._is_view()


def test_they_are_put_back():
    before = utils.segment
    with onehop.patch():
        assert utils.segment is not before
        assert "torch_geometric.utils.segment" in onehop.patched()
    assert utils.segment is before
