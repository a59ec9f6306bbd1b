"""Integers sorted, told apart and looked up by native code, beside the naive code and torch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from onehop import native
from onehop.ops import integers
from onehop.ops.integers import Integers, unique_pairs
from onehop.reference import integers as naive

LEAST, MOST = -(2**63), 2**63 - 1
MIDDLE = 2**31


def random(count: int, least: int, most: int) -> Tensor:
    return torch.randint(least, most, (count,), generator=torch.Generator().manual_seed(count))


# Of int64, in few buckets and in many, in words of 4, 8 and 16 bytes.
NUMBERS: dict[str, Callable[[], Tensor]] = {
    "one": lambda: torch.tensor([7]),
    "two": lambda: torch.tensor([5, -5]),
    "equal": lambda: torch.full((300,), -3),
    "ascending": lambda: torch.arange(-20, 280) // 3,
    "descending": lambda: torch.arange(300, 0, -1),
    "few values": lambda: random(300, -3, 4),
    "as many values": lambda: random(300, -100, 200),
    "more values": lambda: random(300, 0, 1000),
    "node numbers": lambda: random(300, 0, 2**31),
    "far apart": lambda: random(300, -(2**62), 2**62),
    "the least and the largest": lambda: torch.cat([random(300, LEAST, MOST), torch.tensor([MOST, LEAST])]),
    "one far away": lambda: torch.cat([random(300, 0, 9), torch.tensor([2**50]), random(9, 0, 9)]),
    "buckets": lambda: random(20_000, 0, 2**40),
    "buckets of few values": lambda: random(20_000, 0, 900),
    "buckets, far apart": lambda: random(20_000, LEAST, MOST),
    # Their upper bits do not tell them apart: sorted by these alone they are far from their places.
    "buckets, in clusters": lambda: (random(20_000, 0, 9) << 40) + random(20_001, 0, 2**14)[1:],
    "a bucket of nearly all": lambda: torch.cat([random(9_000, 0, 2**20), torch.tensor([2**60])]),
}
each_numbers = pytest.mark.parametrize("name", NUMBERS)
each_dtype = pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=["int64", "int32"])
each_threads = pytest.mark.parametrize("threads", [1, 3])


@pytest.fixture(autouse=True)
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as the test has, if it says so."""
    if "threads" in request.fixturenames:
        number = request.getfixturevalue("threads")
        monkeypatch.setattr(native, "threads", lambda: number)


def make(name: str, dtype: torch.dtype = torch.int64) -> Tensor:
    """The numbers, of which int32 has the lower bits."""
    return NUMBERS[name]().to(dtype)


def assert_same(found: tuple[Tensor, ...] | None, expected: tuple[Tensor, ...]) -> None:
    assert found is not None
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one, other)


@each_threads
@each_dtype
@pytest.mark.parametrize("descending", [False, True])
@each_numbers
def test_sorted_as_by_torch(name: str, descending: bool, dtype: torch.dtype, threads: int) -> None:
    x = make(name, dtype)
    expected = x.sort(stable=True, descending=descending)
    assert_same(Integers(x).sorted(descending), (expected.values, expected.indices))


@each_threads
@each_dtype
@pytest.mark.parametrize("wanted", [(False, False), (True, False), (False, True), (True, True)])
@each_numbers
def test_unique_as_by_torch(name: str, wanted: tuple[bool, bool], dtype: torch.dtype, threads: int) -> None:
    x = make(name, dtype)
    assert_same(Integers(x).unique(*wanted), torch._unique2(x, True, *wanted))


@each_threads
@each_dtype
@pytest.mark.parametrize("inverted", [False, True])
@each_numbers
def test_found_as_by_torch(name: str, inverted: bool, dtype: torch.dtype, threads: int) -> None:
    others = make(name, dtype)
    around = torch.cat([others, others - 1, others[:5] + 2, random(500, -50, 2000).to(dtype)])
    for x in (around, around.long(), random(90, LEAST, MOST)):
        found = Integers(others).contain(x, inverted)
        if name == "the least and the largest" and dtype is torch.int64:
            assert found is None
        else:
            assert found is not None
            assert torch.equal(found, torch.isin(x, others, invert=inverted))


@pytest.mark.parametrize("end", [LEAST, MOST])
def test_a_number_that_is_not_among_others_is_found_at_neither_end(end: int) -> None:
    others = torch.tensor([end, 0, 5])
    x = torch.tensor([LEAST, LEAST + 1, -1, 0, 4, 6, MOST - 1, MOST])
    found = Integers(others).contain(x)
    assert found is not None
    assert found.tolist() == naive.isin(x.tolist(), others.tolist())


@each_numbers
def test_naive_code_agrees(name: str) -> None:
    x = make(name)[:300]
    given = x.tolist()
    for descending in (False, True):
        found = Integers(x).sorted(descending)
        assert found is not None
        assert tuple(each.tolist() for each in found) == naive.sort(given, descending)
    told = Integers(x).unique()
    assert told is not None
    assert tuple(each.tolist() for each in told) == naive.unique(given)
    among = Integers(x[::3]).contain(x, True)
    assert among is None or among.tolist() == naive.isin(given, given[::3], True)


def test_a_table_is_as_good_as_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(500, -40, 3000)
    for spread in (0, 100):
        monkeypatch.setattr(integers, "MOST_SPREAD", spread)
        monkeypatch.setattr(integers, "MOST_SPREAD_OF_PLACES", spread)
        assert_same(Integers(x).unique(), torch._unique2(x, True, True, True))
        assert_same(Integers(x).unique(False, False), torch._unique2(x, True, False, False))


@each_threads
def test_numbers_of_many_pieces(threads: int) -> None:
    x = random(300_000, -70_000, 200_000)
    assert_same(Integers(x).unique(), torch._unique2(x, True, True, True))
    few = random(300_000, 0, 40)
    assert_same(Integers(few).unique(), torch._unique2(few, True, True, True))
    far = random(60_000, 0, 2**40)
    expected = far.sort(stable=True)
    assert_same(Integers(far).sorted(), (expected.values, expected.indices))
    assert_same(Integers(far).unique(), torch._unique2(far, True, True, True))
    ascending = x.sort().values
    for place in (1, 65_536, 299_999):
        ascending[place - 1 : place + 1] = torch.tensor([9, 8])
        assert not Integers(ascending).ascend
        ascending = x.sort().values
    assert Integers(ascending).ascend


def test_shapes_and_gaps() -> None:
    x = random(600, 0, 50).view(20, 30)
    for given in (x, x.t(), x[::2, 1::3], x[:, :1].expand(20, 4)):
        assert_same(Integers(given).unique(), torch._unique2(given, True, True, True))
        found = Integers(x[0]).contain(given)
        assert found is not None
        assert_same((found,), (torch.isin(given, x[0]),))
    for vector in (x[:, 3], x.view(-1)[::2], x.view(-1)[7:]):
        expected = vector.sort(stable=True)
        assert_same(Integers(vector).sorted(), (expected.values, expected.indices))
    number = torch.tensor(4)
    assert_same(Integers(number).unique(), torch._unique2(number, True, True, True))


@each_threads
@each_dtype
@each_numbers
def test_pairs_as_by_torch(name: str, dtype: torch.dtype, threads: int) -> None:
    x = make(name, dtype)[:3000]
    pairs = torch.stack([x, x.flip(0)])
    expected = torch.unique(pairs, dim=1, return_inverse=True, return_counts=True)
    found = unique_pairs(pairs)
    if int(x.max()) - min(int(x.min()), 0) >= MIDDLE:
        assert found is None
        return
    assert found is not None
    assert_same((found[0].t(), *found[1:]), expected)


def test_naive_pairs_agree() -> None:
    pairs = random(400, -5, 6).view(2, 200)
    found = unique_pairs(pairs)
    assert found is not None
    values, inverse, counts = naive.unique_pairs(*pairs.tolist())
    assert [tuple(each) for each in found[0].tolist()] == values
    assert (found[1].tolist(), found[2].tolist()) == (inverse, counts)
