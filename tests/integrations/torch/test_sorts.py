"""torch's ``unique``, ``isin`` and stable ``sort`` of integers under the patch, equal in every bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import onehop
from onehop import thresholds
from onehop.integrations import rows
from onehop.integrations.torch import sorts
from onehop.ops.integers import Integers
from onehop.reference.independent import independent
from tests.integrations.torch import dispatched
from tests.integrations.torch.dispatched import served

LEAST, MOST = -(2**63), 2**63 - 1


def random(count: int, least: int = -40, most: int = 60) -> Tensor:
    return torch.randint(least, most, (count,), generator=torch.Generator().manual_seed(count))


def both(run: Callable[[], Any], raises: bool | None = False) -> None:
    """Fails unless a function tells the same under the patch as without it, in every bit."""
    dispatched.both(run, raises=raises, rtol=0, atol=0)


X: dict[str, Tensor] = {
    "few values": random(500),
    "far apart": random(500, LEAST, MOST),
    "ascending": random(500).sort().values,
    "equal": torch.full((90,), 7),
    "one": torch.tensor([3]),
    "int32": random(500).int(),
    "every other": random(900)[::2],
    "expanded": random(1).expand(50),
    "from an offset": random(900)[7:],
    "a matrix": random(600).view(20, 30),
    "a matrix turned": random(600).view(20, 30).t(),
    "a cube": random(600).view(2, 300).unsqueeze(1)[:, :, ::3],
    "a number": torch.tensor(5),
    "none": random(5)[:0],
    "no rows": torch.empty(0, 2, dtype=torch.int64),
    "int16": random(500).to(torch.int16),
    "uint8": random(500).to(torch.uint8),
    "bool": random(500) > 0,
    "float32": random(500).float(),
    "float64 with NaN": torch.cat([random(500).double(), torch.tensor([torch.nan] * 2)]),
}
PAIRS: dict[str, Tensor] = {
    "edges": random(900, 0, 12).view(2, 450),
    "negative": random(900).view(2, 450),
    "in order": torch.arange(450).repeat(2, 1),
    "equal": torch.tensor([[3], [-2]]).expand(2, 90),
    "int32": random(900).view(2, 450).int(),
    "far apart": random(900, LEAST, MOST).view(2, 450),
    "the least": torch.tensor([[LEAST, 5, LEAST], [0, 1, 0]]),
    "nearly too far apart": torch.tensor([[-(2**30), 2**30 - 1, -(2**30)], [4, 3, 4]]),
    "one": torch.tensor([[8], [9]]),
    "square": torch.tensor([[8, 9], [2, 1]]),
    "two equal": torch.tensor([[8, 8], [2, 2]]),
    "every other": random(1800, 0, 12).view(2, 900)[:, ::2],
    "turned": random(900, 0, 12).view(450, 2).t(),
    "three lines": random(900, 0, 5).view(3, 300),
    "one line": random(90).view(1, 90),
    "none": torch.empty(2, 0, dtype=torch.int64),
    "a cube": random(900, 0, 5).view(2, 150, 3),
    "float32": random(900, 0, 12).view(2, 450).float(),
}


@pytest.mark.parametrize("wanted", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("name", X)
def test_unique(name: str, ascending: bool, wanted: tuple[bool, bool]) -> None:
    x = X[name]
    both(lambda: torch.unique(x, ascending, *wanted))
    both(lambda: torch.ops.aten._unique2(x, ascending, *wanted))


@pytest.mark.parametrize("wanted", [(False, False), (True, True)])
@pytest.mark.parametrize("dim", [0, 1, -1, -2])
@pytest.mark.parametrize("name", PAIRS)
def test_unique_along_a_dimension(name: str, dim: int, wanted: tuple[bool, bool]) -> None:
    pairs = PAIRS[name]
    raises = False if pairs.numel() else None  # along the other dimension
    for x in (pairs, pairs.transpose(0, 1)):
        both(lambda x=x: torch.unique(x, True, *wanted, dim=dim), raises)
        both(lambda x=x: torch.ops.aten.unique_dim(x, dim, False, *wanted), raises)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", X)
def test_sort(name: str, descending: bool) -> None:
    x = X[name]
    both(lambda: torch.sort(x, stable=True, descending=descending))
    both(lambda: x.argsort(stable=True, descending=descending))
    both(lambda: x.sort(descending=descending))
    both(lambda: x.sort(0, descending))
    both(lambda: torch.sort(x, dim=1 if x.dim() > 1 else -1, stable=True))
    both(lambda: torch.ops.aten.sort.stable(x, stable=None, dim=-1, descending=descending))


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("name", X)
def test_isin(name: str, inverted: bool) -> None:
    x = X[name]
    if x.dtype is torch.bool:
        both(lambda: torch.isin(x, x, invert=inverted), raises=True)
        return
    for others in (
        *(X[each] for each in ("few values", "int32", "one", "none", "a matrix turned", "float32")),
        x,
    ):
        both(lambda others=others: torch.isin(x, others, invert=inverted))
    distinct = x.flatten().unique()
    both(lambda: torch.isin(distinct, distinct[::2], assume_unique=True, invert=inverted))
    both(lambda: torch.isin(x, 7, invert=inverted))
    both(lambda: torch.isin(7, x, invert=inverted))


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("unique", lambda: torch.unique(X["few values"])),
        ("unique", lambda: X["int32"].unique(sorted=False, return_counts=True)),
        ("unique", lambda: torch.unique(X["a matrix turned"], return_inverse=True)),
        ("unique_dim", lambda: torch.unique(PAIRS["edges"], dim=1)),
        ("unique_dim", lambda: PAIRS["negative"].t().unique(dim=0)),
        ("sort", lambda: X["few values"].sort(stable=True)),
        ("sort", lambda: X["int32"].sort(stable=True, descending=True)),
        ("sort", lambda: X["far apart"].argsort(stable=True)),
        ("isin", lambda: torch.isin(X["few values"], X["int32"])),
        ("isin", lambda: torch.isin(X["a matrix"], X["far apart"])),
    ],
)
def test_our_code_runs(name: str, run: Callable[[], Any]) -> None:
    with served() as names:
        run()
    assert name in names


LEFT: dict[str, Callable[[], Any]] = {
    "few that need not be stable": lambda: X["few values"].sort(),
    "descending ones that need not be stable": lambda: random(40_000).sort(descending=True),
    "rows": lambda: X["a matrix"].sort(stable=True),
    "distinct ones that are told apart": lambda: torch.isin(X["one"], X["one"], assume_unique=True),
    "a number among others": lambda: torch.isin(X["few values"], 7),
    "both ends": lambda: torch.isin(X["few values"], torch.tensor([LEAST, MOST])),
    "pairs far apart": lambda: torch.unique(PAIRS["far apart"], dim=1),
    "triples": lambda: torch.unique(PAIRS["three lines"], dim=1),
    "floats": lambda: (torch.unique(X["float32"]), X["float32"].sort(stable=True)),
    "none": lambda: (torch.unique(X["none"]), X["none"].sort(stable=True), torch.isin(X["one"], X["none"])),
}


@pytest.mark.parametrize("name", LEFT)
def test_torchs_code_runs(name: str) -> None:
    with served() as names:
        LEFT[name]()
    assert not names & {"unique", "unique_dim", "sort", "isin"}
    both(LEFT[name])


def test_a_sort_that_need_not_be_stable_is_torchs_unless_that_is_stable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = random(1 << 15)
    both(x.sort)
    for by_radix in (True, False):
        monkeypatch.setattr(sorts, "_sorts_by_radix", lambda by_radix=by_radix: by_radix)
        with served() as names:
            x.sort()
        assert ("sort" in names) == by_radix


def test_an_order_of_torchs_own_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorts, "_tells_apart_by_sorting", lambda: False)
    with served() as names:
        torch.unique(X["few values"], sorted=False)
    assert "unique" not in names
    with served() as names:
        torch.unique(X["few values"])
    assert "unique" in names


def test_what_is_known_of_torch() -> None:
    stable = random(1 << 15).sort(stable=True)
    assert sorts._sorts_by_radix() == torch.equal(random(1 << 15).sort().indices, stable.indices)
    some = torch.unique(random(999, 0, 500), sorted=False)
    assert sorts._tells_apart_by_sorting() == bool((some.diff() > 0).all())


@pytest.mark.parametrize("by_radix", [True, False])
def test_sizes_at_which_torch_is_nearly_as_fast(by_radix: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorts, "_sorts_by_radix", lambda: by_radix)
    monkeypatch.setattr(sorts, "_BY_RADIX", 1000)
    monkeypatch.setattr(sorts, "_MANY", 2000)
    for count, far, farthest in (
        (999, True, True),
        (1000, not by_radix, not by_radix),
        (2000, True, not by_radix),
    ):
        for x, pays in (
            (random(count, 0, count), True),
            (torch.arange(count).mul(2**30), True),
            (random(count, 0, 2**40), far),
            (torch.cat([random(count - 1, 0, count), torch.tensor([2**40])]), far),
            (random(count, LEAST, MOST), farthest),
        ):
            both(lambda x=x: (x.sort(stable=True), x.unique(return_inverse=True)))
            with served() as names:
                x.sort(stable=True)
                x.unique(return_inverse=True)
            assert names & {"sort", "unique"} == ({"sort", "unique"} if pays else set())
        with served() as names:
            random(count, LEAST, MOST).unique()
        assert ("unique" in names) == far


def test_small_calls_are_torchs() -> None:
    few = thresholds.ORDINARY.sorted_numbers - 1
    x, pairs = random(few), random(few - few % 2).view(2, -1)
    calls = (lambda: x.sort(stable=True), x.unique, lambda: torch.isin(x, x), lambda: pairs.unique(dim=1))
    with onehop.patch(only="torch"), thresholds.changed(), rows.counted(everywhere=True) as counts:
        if thresholds.now == thresholds.ORDINARY:
            for call in calls:
                call()
            assert not counts
        for call in (lambda: random(few + 1).sort(stable=True), random(few + 1).unique):
            call()
    assert {name for name, ours in counts if ours} >= {"sort", "unique"}


@pytest.mark.parametrize("name", ["few values", "far apart"])
def test_in_every_context(name: str) -> None:
    x = X[name]

    def run() -> tuple[Any, ...]:
        return x.sort(stable=True), x.unique(return_inverse=True), torch.isin(x, x[:9])

    def in_inference() -> Any:
        with torch.inference_mode():
            return [each.is_inference() for each in x.sort(stable=True)], run()

    both(run)
    both(in_inference)
    both(lambda: torch.func.vmap(lambda each: each.sort(stable=True).values)(x.view(2, -1)))
    both(lambda: type(x.sort(stable=True)).__name__)
    both(lambda: torch.jit.trace(lambda given: given.sort(stable=True)[0], x, check_trace=False)(x))
    both(
        lambda: torch.sort(
            x, stable=True, out=(torch.empty(0, dtype=x.dtype), torch.empty(0, dtype=torch.int64))
        )
    )


def test_results_own_their_memory() -> None:
    x = torch.arange(500)
    with served() as names:
        found = [*x.sort(stable=True), *x.unique(return_inverse=True, return_counts=True)]
    assert {"sort", "unique"} <= names
    for each in found:
        each.fill_(-1)
    assert torch.equal(x, torch.arange(500))


def test_specifications_are_torchs() -> None:
    with served() as names, independent():
        X["few values"].sort(stable=True)
    assert "sort" not in names


def test_without_memory_torchs_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Integers, "sorted", fail)
    expected = X["few values"].sort(stable=True)
    with served() as names:
        found = X["few values"].sort(stable=True)
    assert "sort" not in names
    assert torch.equal(found.indices, expected.indices)
