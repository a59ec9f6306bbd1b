"""Numbers of edges in a trial: Python gets the real ones, torch the others, and questions are noted."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from onehop.compiler.counts import Count, Counts, Shape, tried

REAL, TRIED = 20_000, 7


class Asked:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def asked() -> Asked:
    return Asked()


ASKING: dict[str, Callable[[Any], Any]] = {
    "larger": lambda n: n > 1000,
    "smaller on the right": lambda n: n > 1000,
    "equal": lambda n: n == 20_000,
    "odd": lambda n: n % 2,
    "a quotient": lambda n: n // 100,
    "a quotient on the right": lambda n: 100_000 // n,
    "a fraction": lambda n: n / 3,
    "a root": lambda n: math.sqrt(n),
    "a power": lambda n: n**2,
    "a float": lambda n: float(n),
    "a number": lambda n: int(n),
    "times a fraction": lambda n: n * 0.5,
    "a text": lambda n: f"{n}",
    "another text": lambda n: str(n),
    "a key": lambda n: {20_000: "many"}.get(n),
    "a member": lambda n: n in (7, 20_000),
    "the smaller one": lambda n: min(n, 5),
    "rounded": lambda n: round(n, -3),
    "both": lambda n: divmod(n, 7),
    "bits": lambda n: n & 1,
    "shifted": lambda n: n >> 2,
    "negative": lambda n: abs(-n),
    "one less is none": lambda n: (n - 1) == 0,
    "one less": lambda n: bool(n - 1),
    "a list": lambda n: [0] * n,
    "a floor": lambda n: math.floor(n),
    "a sum of floats": lambda n: sum([n, 0.5]),
    "a ceiling": lambda n: math.ceil(n),
    "the whole part": lambda n: math.trunc(n),
    "a padded text": lambda n: f"{n:8d}",
    "its own text": lambda n: f"{n!r}",
    "its hash": lambda n: hash(n),
    "at least": lambda n: n >= 1000,
    "at most": lambda n: n <= 1000,
    "smaller": lambda n: n < 1000,
    "not equal": lambda n: n != 20_000,
    "equal to a fraction": lambda n: n == 0.5,
    "the other bits": lambda n: ~n,
    "bits on the right": lambda n: 1 & n,
    "more bits on the right": lambda n: 1 | n,
    "other bits on the right": lambda n: 1 ^ n,
    "shifted by it": lambda n: 1 << n,
    "shifted back by it": lambda n: 1 >> n,
    "both on the right": lambda n: divmod(7, n),
    "a rest on the right": lambda n: 100_000 % n,
    "a power on the right": lambda n: 2**n,
    "a fraction on the right": lambda n: 3 / n,
    "bits added": lambda n: n | 1,
    "bits moved": lambda n: n << 1,
    "bits that differ": lambda n: n ^ 1,
    "nothing of it": lambda n: n * 0 == 0,
    "less than nothing of it": lambda n: n * -1 < 0,
    "a product with a difference": lambda n: n * (n - 1) > 0,
    "a difference times two": lambda n: (n - 1) * 2 > 0,
}


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_what_python_asks_is_answered_with_the_real_number_and_noted(ask, asked):
    assert ask(Count(REAL, TRIED, asked)) == ask(REAL)
    assert asked.times


LINEAR: dict[str, Callable[[Any], Any]] = {
    "twice": lambda n: n * 2,
    "twice on the right": lambda n: 2 * n,
    "one more": lambda n: n + 1,
    "one less": lambda n: n - 1,
    "from ten": lambda n: 10 - n,
    "negative": lambda n: -n,
    "itself": lambda n: +n,
    "with itself": lambda n: n + n * 3,
}


@pytest.mark.parametrize("compute", LINEAR.values(), ids=LINEAR)
def test_what_is_computed_with_sums_and_products_is_a_count_again(compute, asked):
    found = compute(Count(REAL, TRIED, asked))
    assert (int.__int__(found), found.tried) == (compute(REAL), compute(TRIED))
    assert not asked.times


def test_what_holds_for_every_number_of_edges_above_0_asks_nothing(asked):
    count = Count(REAL, TRIED, asked)
    assert (count == 0, count != 0, count > 0, count <= 0, bool(count)) == (False, True, True, False, True)
    assert (count >= 0, count < 0) == (True, False)
    assert (count * 2 == 0, count == Count(REAL, TRIED, asked)) == (False, True)
    assert not asked.times


@pytest.mark.parametrize(("real", "few"), [(REAL + 1, TRIED), (REAL, TRIED + 1)])
def test_another_number_that_is_equal_in_the_trial_or_really_is_asked_about(real, few, asked):
    assert (Count(REAL, TRIED, asked) == Count(real, few, lambda: None)) == (real == REAL)
    assert asked.times


def test_a_tensor_compares_itself_with_a_number(asked):
    assert (Count(REAL, TRIED, asked) > torch.zeros(2)).tolist() == [True, True]


def test_numbers_of_nodes_are_told_as_they_are():
    counts = Counts()
    told = counts.by_name({"size_i": (REAL, TRIED)})
    assert (told["size_i"].tried, counts.of_nodes) == (TRIED, False)
    assert told["size_i"] > 1000
    assert counts.of_nodes
    counts = Counts()
    told = counts.by_name({"size_i": (REAL, None), "size_j": (REAL, TRIED)})
    assert (told["size_i"].tried, told["size_j"].tried, counts.of_nodes) == (REAL, TRIED, True)


def test_torch_gets_the_numbers_of_the_trial(asked):
    count = Count(REAL, TRIED, asked)
    shape = Shape([count, 4], asked)
    longer = shape + (2,)  # noqa: RUF005
    given = tried((count, [count * 2, 3], slice(None, count), {"size": longer}, "n"))
    assert given == (7, [14, 3], slice(None, 7), {"size": torch.Size([7, 4, 2])}, "n")
    assert all(type(each) is int for each in given[3]["size"])
    assert not asked.times


TAKING: dict[str, Callable[[Any], Any]] = {
    "the first": lambda shape: shape[0],
    "the first from the back": lambda shape: shape[-2],
    "all": lambda shape: [*shape],
    "as a tuple": tuple,
    "one by one": lambda shape: next(iter(shape)),
    "the first of some": lambda shape: shape[:1][0],
    "a hash": hash,
}
LEAVING: dict[str, Callable[[Any], Any]] = {
    "the last": lambda shape: shape[-1],
    "how many": len,
    "some": lambda shape: shape[1:],
    "one more": lambda shape: shape + (3,),  # noqa: RUF005
    "behind others": lambda shape: (3,) + shape,  # noqa: RUF005
}


@pytest.mark.parametrize(
    ("take", "takes"),
    [(each, True) for each in TAKING.values()] + [(each, False) for each in LEAVING.values()],
    ids=[*TAKING, *LEAVING],
)
def test_a_shape_notes_when_a_count_is_taken_out_of_it(take, takes, asked):
    found = take(Shape([Count(REAL, TRIED, lambda: None), 4], asked))
    assert bool(asked.times) == takes
    assert found == take(torch.Size([REAL, 4]))


def test_shapes_are_compared_by_all_their_sizes(asked):
    shape = Shape([Count(REAL, TRIED, asked), 4], asked)
    assert shape == (REAL, 4)
    assert shape != (REAL, 4, 1)
    assert shape != (REAL, 5)
    assert not shape != (REAL, 4)  # noqa: SIM202


def test_sizes_that_are_no_tensors_are_as_they_are():
    counts, size = Counts(), torch.Size([3])
    assert counts.of(_of_rows, torch.broadcast_shapes, ((3,), (1,)), {}, size) is size
    assert counts.of(_of_rows, torch.Tensor.size, (torch.ones(TRIED, 4),), {"dim": 0}, TRIED) == REAL


def _of_rows(tensor: torch.Tensor, dim: int) -> int | None:
    return REAL if dim == 0 else None


@pytest.mark.parametrize(
    ("function", "args", "expected", "asks"),
    [
        (torch.Tensor.size, (0,), REAL, False),
        (torch.Tensor.size, (1,), 4, False),
        (torch.Tensor.size, (-2,), REAL, False),
        (torch.Tensor.size, (), (REAL, 4), False),
        (torch.Tensor.shape.__get__, (), (REAL, 4), False),
        (torch.Tensor.numel, (), REAL * 4, False),
        (torch.numel, (), REAL * 4, False),
        (torch.Tensor.nelement, (), REAL * 4, False),
        (torch.Tensor.__len__, (), REAL, True),
        (torch.Tensor.dim, (), 2, False),
    ],
)
def test_sizes_of_tensors_are_the_real_ones(function, args, expected, asks):
    x, counts = torch.ones(TRIED, 4), Counts()
    found = counts.of(_of_rows, function, (x, *args), {}, function(x, *args))
    assert found == expected
    assert counts.of_edges == (
        asks or isinstance(expected, tuple) or expected == REAL * 4 or expected == REAL
    )
