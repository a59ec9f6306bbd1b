"""torch_scatter's functions and operators under the patch: its results, gradients, rules and errors."""

import importlib
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

import onehop
from onehop import thresholds
from onehop.integrations import rows
from onehop.integrations.torch import kernels, scatters, segments
from tests.integrations.same import assert_same, learned, noted, outcome
from tests.pairs import pairwise

ROWS, ENTRIES = 11, 60
ANY = torch.randint(0, ROWS, (ENTRIES,), generator=torch.Generator().manual_seed(0))
# Row 3 has no entry, and the last one is found where no size is given.
ANY[ANY == 3] = 4
ANY[7] = ROWS - 1
SORTED = ANY.sort().values
BOUNDS = torch.searchsorted(SORTED, torch.arange(ROWS + 1))
SHAPES = {"matrix": (4,), "cube": (2, 3)}
INDICES = {
    "any order": lambda shape: ANY,
    "sorted": lambda shape: SORTED,
    "one column": lambda shape: ANY.view(-1, 1),
    "expanded": lambda shape: ANY.view(-1, *[1] * len(shape)).expand(-1, *shape),
}


@pytest.fixture(autouse=True)
def _forgets():
    """The indices live as long as this module, and so would what is kept of them."""
    yield
    onehop.clear_cache()


@pytest.fixture
def package(monkeypatch):
    """torch_scatter, or a replacement if it is not installed."""
    try:
        return importlib.import_module("torch_scatter")
    except ImportError:
        # Imported here, because it registers operators.
        replacement = importlib.import_module("tests.integrations.torch.like_torch_scatter")
        monkeypatch.setitem(sys.modules, "torch_scatter", replacement)
        monkeypatch.setattr(kernels, "library_of", {"torch_scatter": replacement.LIBRARY}.get)
        return replacement


@pytest.fixture
def served(monkeypatch):
    """Has an entry for each call of onehop that runs in the place of an operator of torch_scatter."""
    calls = []
    for name in ("gathered", "scattered", "arg_extremum"):
        noted(monkeypatch, scatters, name, lambda *_, name=name, **__: calls.append(name))
    return calls


def numbers(*shape: int) -> Tensor:
    """Whole numbers, so that extrema tie, also at 0."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-3, 3, shape, generator=generator).double()


def same(found: Any, expected: Any) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.is_contiguous() == theirs.is_contiguous()
        assert_same(ours, theirs, 1e-12, 1e-12)


def check(call, x: Tensor, served: list[str], expected_calls: list[str]) -> None:
    """The results and gradients under the patch are those of the package."""

    def run() -> tuple[list[Tensor], Any]:
        leaf = x.detach().clone().requires_grad_()
        out = call(leaf)
        results = [*out] if isinstance(out, tuple) else [out]
        return results, learned(results[0], leaf)[1:]

    expected, expected_gradients = run()
    with onehop.patch(), thresholds.lifted():
        results, gradients = run()
    same(results, expected)
    assert_same(gradients, expected_gradients, 1e-12, 1e-12)
    assert served == expected_calls


SUMS = {
    "scatter": lambda package, *args: package.scatter(*args),
    "scatter_add": lambda package, *args: package.scatter_add(*args),
    "scatter, mean": lambda package, *args: package.scatter(*args, reduce="mean"),
}
EXTREMA = {
    "scatter, max": lambda package, *args: package.scatter(*args, reduce="max"),
    "scatter_max": lambda package, *args: package.scatter_max(*args),
    "scatter_min": lambda package, *args: package.scatter_min(*args),
}


@pairwise(
    name=[*SUMS, *EXTREMA],
    index=list(INDICES),
    shape=list(SHAPES),
    counted=[True, False],
    size=[None, ROWS, ROWS + 2],
)
def test_scatters(name, index, shape, counted, size, package, served):
    x, i = numbers(ENTRIES, *SHAPES[shape]), INDICES[index](SHAPES[shape])
    dim = -x.dim() if counted else 0
    function = (SUMS | EXTREMA)[name]
    # Sums and means are made of torch's operators, which are served below autograd.
    calls = ["arg_extremum"] if name in EXTREMA else []
    with rows.counted(everywhere=True) as counts:
        check(lambda x: function(package, x, i, dim, None, size), x, served, calls)
    assert name in EXTREMA or counts["scatter_add", True]


@pytest.mark.parametrize("index", ["a vector", "expanded"])
@pytest.mark.parametrize("dim", [1, 2, -1])
@pytest.mark.parametrize("name", EXTREMA)
def test_extrema_along_other_dimensions(name, dim, index, package, served):
    x = numbers(2, 3, 5).transpose(0, dim).repeat_interleave(ENTRIES // 2, dim=dim)
    assert x.size(dim) == ENTRIES
    shape = [1] * x.dim()
    shape[dim] = ENTRIES
    i = ANY if index == "a vector" else ANY.view(shape).expand(x.shape)
    check(lambda x: EXTREMA[name](package, x, i, dim, None, ROWS), x, served, ["arg_extremum"])


@pytest.mark.parametrize("inference", [False, True])
def test_torchscript_is_served(inference, package, served):
    def function(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ops.torch_scatter.scatter_max(x, i, 0, None, None)

    x, scripted = numbers(ENTRIES, 4), torch.jit.script(function)
    with torch.inference_mode(inference):
        expected = scripted(x, ANY)
        with onehop.patch(), thresholds.lifted():
            same(scripted(x, ANY), expected)
    assert served == ["arg_extremum"]


def test_operators_own_what_they_return(package):
    x, names = numbers(ENTRIES, 4), ["scatter_max", "segment_sum_csr"]
    owners = x._use_count(), ANY._use_count(), BOUNDS._use_count()
    with onehop.patch(), thresholds.lifted():
        assert {f"torch.ops.torch_scatter.{name}" for name in names} <= set(onehop.patched())
        for _ in range(3):
            results = [*package.scatter_max(x, ANY, 0), package.segment_csr(x, BOUNDS)]
            assert [result._use_count() for result in results] == [1, 1, 1]
    del results
    onehop.clear_cache()
    assert (x._use_count(), ANY._use_count(), BOUNDS._use_count()) == owners


SEGMENTS = {
    "coo": lambda package, x, **named: package.segment_coo(x, SORTED, **named),
    "coo of a size": lambda package, x, **named: package.segment_coo(x, SORTED, dim_size=ROWS + 1, **named),
    "csr": lambda package, x, **named: package.segment_csr(x, BOUNDS, **named),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("name", SEGMENTS)
def test_segments(name, reduce, shape, package, served):
    x = numbers(ENTRIES, *SHAPES[shape])
    check(lambda x: SEGMENTS[name](package, x, reduce=reduce), x, served, ["scattered"])


GATHERS = {
    "coo": lambda package, x: package.gather_coo(x, SORTED),
    "csr": lambda package, x: package.gather_csr(x, BOUNDS),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", GATHERS)
def test_gathers(name, shape, package, served):
    check(lambda x: GATHERS[name](package, x), numbers(ROWS, *SHAPES[shape]), served, ["gathered"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["scatter_max", "scatter_min"])
def test_what_nothing_beats_is_no_entry(name, dtype, package, served):
    bound = torch.finfo(dtype).max
    rows = [
        [torch.nan],
        [torch.inf],
        [-torch.inf],
        [bound],
        [-bound],
        [torch.nan, 2, torch.nan, 2],
        [0, -0.0],
    ]
    x = torch.tensor([each for row in rows for each in row], dtype=dtype).view(-1, 1).repeat(1, 2)
    index = torch.repeat_interleave(torch.tensor([len(row) for row in rows]))
    expected = getattr(package, name)(x, index, 0)
    with onehop.patch(), thresholds.lifted():
        found = getattr(package, name)(x, index, 0)
    same([*found], [*expected])
    assert served == ["arg_extremum"]


LEFT = {
    "out": lambda package, x: package.scatter_sum(x, ANY, 0, torch.ones(ROWS, 4).double()),
    "columns": lambda package, x: package.scatter_sum(x[:4], torch.tensor([1, 0, 0, 1])),
    "maxima of entries": lambda package, x: package.scatter_max(x, x.long().abs(), 0)[0],
    "an index for each column": lambda package, x: package.scatter_sum(x, x.long().abs(), 0),
    "an index without columns": lambda package, x: package.scatter_sum(x, ANY.view(-1, 1)[:, :0], 0),
    "numbers": lambda package, x: package.scatter_mean(x[:, 0], ANY),
    "too few rows": lambda package, x: package.gather_csr(x[:2].clone(), BOUNDS[:1]),
    "some rows": lambda package, x: package.segment_csr(x, torch.tensor([2, 5, 9])),
    "unsorted": lambda package, x: package.gather_coo(x, ANY),
    "integers": lambda package, x: package.scatter_sum((2 * x).long(), ANY, 0),
    "nothing": lambda package, x: package.scatter_sum(x[:0], ANY[:0], 0, None, ROWS),
    "a transform": lambda package, x: vmap(lambda x: package.scatter_sum(x, ANY, 0, None, ROWS))(x[None]),
}


@pytest.mark.parametrize("bounds", [[], [0], [1, ENTRIES], [0, ENTRIES - 1], [0, 9, 5, ENTRIES]], ids=str)
def test_bounds_that_leave_rows_out_are_no_graph(bounds):
    assert segments.graph_of_bounds(torch.tensor(bounds, dtype=torch.int64), ENTRIES) is None


@pytest.mark.parametrize("name", LEFT)
def test_all_else_is_left_to_the_package(name, package, served):
    x = numbers(ENTRIES, 4)
    expected = outcome(lambda: LEFT[name](package, x))
    with onehop.patch(indexing=True), thresholds.lifted():
        found = outcome(lambda: LEFT[name](package, x))
    assert served == []
    assert_same(found, expected)


def test_few_numbers_are_left_to_the_package(package, served):
    with onehop.patch():
        package.scatter_sum(numbers(ENTRIES, 4), ANY, 0)
    assert served == []


def test_functions_keep_their_identity_and_operators_come_back(package, served):
    before = dict(vars(package))
    x = numbers(ENTRIES, 4)
    with onehop.patch(), thresholds.lifted():
        assert dict(vars(package)) == before
        with onehop.patch(indexing=False):
            assert not [name for name in onehop.patched() if "torch_scatter" in name]
            package.scatter_max(x, ANY, 0)
            assert served == []
        package.scatter_max(x, ANY, 0)
        assert served == ["arg_extremum"]
    package.scatter_max(x, ANY, 0)
    assert served == ["arg_extremum"]


def test_an_operator_of_another_library_stays_its_own(package, served, monkeypatch):
    monkeypatch.setattr(kernels, "library_of", lambda _: "/a folder of no code")
    with onehop.patch(), thresholds.lifted():
        package.scatter_max(numbers(ENTRIES, 4), ANY, 0)
        assert not [name for name in onehop.patched() if "torch_scatter" in name]
    assert served == []


def test_without_the_package_nothing_is_replaced(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "torch_scatter"]:
        monkeypatch.delitem(sys.modules, name)
    with onehop.patch():
        assert not [name for name in onehop.patched() if "torch_scatter" in name]
