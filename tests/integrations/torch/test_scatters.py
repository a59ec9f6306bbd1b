"""torch_scatter's functions under the patch: its results, gradients, rules and errors."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

import onehop
from onehop import thresholds
from onehop.integrations.torch import scatters, segments
from tests.integrations.same import assert_same, learned, noted, outcome
from tests.integrations.torch import like_torch_scatter
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
        import torch_scatter
    except ImportError:
        monkeypatch.setitem(sys.modules, "torch_scatter", like_torch_scatter)
        return like_torch_scatter
    return torch_scatter


@pytest.fixture
def served(monkeypatch):
    """Has an entry for each call that onehop runs."""
    found = []
    for name in ("gathered", "scattered", "arg_extremum"):
        noted(monkeypatch, scatters, name, lambda *_, name=name, **__: found.append(name))
    return found


def numbers(*shape: int) -> Tensor:
    """Whole numbers, so that extrema tie, also at 0."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-3, 3, shape, generator=generator).double()


def same(found: Any, expected: Any) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.stride() == theirs.stride()
        assert_same(ours, theirs, 1e-12, 1e-12)


def check(call, x: Tensor, served: list[str], expected_calls: list[str]) -> None:
    """The results and gradients under the patch are those of the package."""

    def run() -> list[Tensor]:
        leaf = x.detach().clone().requires_grad_()
        found = call(leaf)
        results = [*found] if isinstance(found, tuple) else [found]
        return [*results, *learned(results[0], leaf)[1:]]

    expected = run()
    with onehop.patch(), thresholds.lifted():
        same(run(), expected)
    assert served == expected_calls


SCATTERS = {
    "scatter": lambda package, *args: package.scatter(*args),
    "scatter_add": lambda package, *args: package.scatter_add(*args),
    "scatter, mean": lambda package, *args: package.scatter(*args, reduce="mean"),
    "scatter, max": lambda package, *args: package.scatter(*args, reduce="max"),
    "scatter_max": lambda package, *args: package.scatter_max(*args),
    "scatter_min": lambda package, *args: package.scatter_min(*args),
}


@pairwise(
    name=list(SCATTERS),
    index=list(INDICES),
    shape=list(SHAPES),
    counted=[True, False],
    size=[None, ROWS, ROWS + 2],
)
def test_scatters(name, index, shape, counted, size, package, served):
    x, i = numbers(ENTRIES, *SHAPES[shape]), INDICES[index](SHAPES[shape])
    dim = -x.dim() if counted else 0
    call = "arg_extremum" if "m" in name and "mean" not in name else "scattered"
    check(lambda x: SCATTERS[name](package, x, i, dim, None, size), x, served, [call])


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
    "maxima of columns": lambda package, x: package.scatter_max(x[:4], torch.tensor([1, 0, 0, 1]))[0],
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


def test_the_patch_is_in_every_module_of_the_package_and_leaves_with_it(package):
    held = {
        name: {each: function for each, function in vars(module).items() if each in scatters._FUNCTIONS}
        for name, module in sys.modules.items()
        if name.split(".")[0] == "torch_scatter"
    }
    names = [
        f"{module.__name__}.scatter_sum"
        for module in map(sys.modules.get, held)
        if hasattr(module, "scatter_sum")
    ]
    with onehop.patch():
        assert set(names) <= set(onehop.patched())
        with onehop.patch(indexing=False):
            assert not set(names) & set(onehop.patched())
    for name, functions in held.items():
        for each, function in functions.items():
            assert getattr(sys.modules[name], each) is function


def test_without_the_package_nothing_is_replaced(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "torch_scatter"]:
        monkeypatch.delitem(sys.modules, name)
    assert scatters.rows() == []
