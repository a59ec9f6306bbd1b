"""Rows by an index, and back, against torch in float64: kinds of index, shapes, contexts, what is kept."""

import math

import pytest
import torch
from torch import Tensor

import onehop
from onehop import ArgumentError, IndexRangeError
from onehop.graph import Graph
from onehop.ops.rows import graph_of_index
from onehop.reference import aggregate
from tests.ops.comparison import assert_as_good_as
from tests.pairs import pairwise

ROWS, ENTRIES = 13, 70
INDICES = {
    "any order": torch.randint(0, ROWS, (ENTRIES,), generator=torch.Generator().manual_seed(0)),
    "sorted": torch.arange(ENTRIES) * (ROWS - 1) // ENTRIES + 1,
    "one row": torch.full((ENTRIES,), 5),
    "once each": torch.arange(ROWS).flip(0),
    "int32": torch.randint(0, ROWS, (ENTRIES,), generator=torch.Generator().manual_seed(1)).int(),
    "strided": torch.randint(0, ROWS, (2 * ENTRIES,), generator=torch.Generator().manual_seed(2))[::2],
    "empty": torch.empty(0, dtype=torch.int64),
}
SHAPES = {"numbers": (), "matrix": (6,), "cube": (2, 3), "no columns": (0,), "wide": (70,)}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
REDUCE = ("sum", "mean", "max", "min")


@pytest.fixture(autouse=True)
def _forgets():
    """The indices live as long as this module, and so would what is kept of them."""
    yield
    onehop.clear_cache()


def made(count: int, shape: tuple[int, ...], seed: int = 3) -> Tensor:
    """Small whole numbers, so that extrema tie."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, (count, *shape), generator=generator).double()


def naive_scatter(values: Tensor, index: Tensor, rows: int, reduce: str) -> Tensor:
    rows_of = values.reshape(len(values), math.prod(values.shape[1:]))
    edges = torch.stack([torch.arange(len(index)), index.long()])
    return aggregate(edges, rows_of, rows, reduce=reduce).reshape(rows, *values.shape[1:])


def with_gradient(function, x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """The result, and the gradient of a weighted sum of it."""
    leaf = x.to(dtype).requires_grad_()
    out = function(leaf)
    factor = made(1, out.shape, seed=4)[0]
    return [out.detach(), *torch.autograd.grad((out * factor).sum(), leaf)]


@pairwise(index=list(INDICES), shape=list(SHAPES), dtype=DTYPES)
def test_gathered_rows_and_their_gradient(index: str, shape: str, dtype: torch.dtype) -> None:
    x, at = made(ROWS, SHAPES[shape]), INDICES[index]
    found = with_gradient(lambda x: onehop.gather(x, at), x, dtype)
    expected = with_gradient(lambda x: x[at.long()], x, torch.float64)
    assert torch.equal(found[0], expected[0].to(dtype))
    plain = with_gradient(lambda x: x[at.long()], x, dtype)
    assert_as_good_as("gradient", found[1], plain[1], expected[1])


@pairwise(index=list(INDICES), shape=list(SHAPES), dtype=DTYPES, reduce=REDUCE)
def test_scattered_rows_and_their_gradient(index: str, shape: str, dtype: torch.dtype, reduce: str) -> None:
    at = INDICES[index]
    values = made(len(at), SHAPES[shape])
    found = with_gradient(lambda v: onehop.scatter(v, at, ROWS, reduce), values, dtype)
    expected = with_gradient(lambda v: naive_scatter(v, at, ROWS, reduce), values, torch.float64)
    plain = with_gradient(lambda v: naive_scatter(v, at, ROWS, reduce), values, dtype)
    for ours, theirs, exact in zip(found, plain, expected, strict=True):
        assert_as_good_as(reduce, ours, theirs, exact)


def test_rows_are_counted_where_no_number_is_given() -> None:
    at = torch.tensor([0, 3, 3])
    assert onehop.scatter(torch.ones(3), at).tolist() == [1, 0, 0, 2]
    assert onehop.scatter(torch.ones(0, 2), at[:0]).shape == (0, 2)
    assert onehop.scatter(torch.ones(3), at, reduce="add").tolist() == [1, 0, 0, 2]


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize(("ties", "shares"), [("share", [0.5, 0.5]), ("first", [1, 0]), ("last", [0, 1])])
def test_conventions_of_ties_and_of_empty_rows(reduce: str, ties: str, shares: list[float]) -> None:
    values, at = torch.tensor([[2.0], [2.0]], requires_grad=True), torch.tensor([1, 1])
    for empty in (0.0, -7.0, math.inf):
        out = onehop.scatter(values, at, 3, reduce, ties=ties, empty=empty)
        assert out.view(-1).tolist() == [empty, 2, empty]
        (grad,) = torch.autograd.grad(out[1].sum(), values)
        assert grad.view(-1).tolist() == shares


def test_numbers_that_are_none_win() -> None:
    values, at = torch.tensor([1.0, math.nan, 3.0]), torch.tensor([0, 0, 1])
    for reduce in REDUCE:
        out = onehop.scatter(values, at, 2, reduce)
        assert math.isnan(out[0])
        assert out[1] == 3


def both(x: Tensor, index: Tensor) -> Tensor:
    rows = onehop.gather(x, index)
    return onehop.scatter(rows.square(), index, ROWS, "mean") + onehop.scatter(rows, index, ROWS, "max")


def test_batches() -> None:
    x, at = made(4, (ROWS, 2)), INDICES["any order"]
    found = torch.vmap(lambda each: both(each, at))(x)
    assert torch.equal(found, torch.stack([both(each, at) for each in x]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("index", ["any order", "sorted", "int32"])
def test_programs(index: str) -> None:
    x, at = made(ROWS, (3,)), INDICES[index]
    program = torch.compile(both, fullgraph=True, backend="aot_eager")
    assert torch.equal(program(x, at), both(x, at))
    leaf = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(program(leaf, at).sum(), leaf)
    (expected,) = torch.autograd.grad(both(leaf, at).sum(), leaf)
    assert torch.equal(found, expected)
    assert torch.equal(program(x, at.flip(0)), both(x, at.flip(0)))


def test_fakes() -> None:
    with torch._subclasses.FakeTensorMode() as mode:
        x, at = mode.from_tensor(made(ROWS, (3,))), mode.from_tensor(INDICES["any order"])
        assert both(x, at).shape == (ROWS, 3)


# What is kept


def test_the_index_is_remembered_and_its_changes_are_noticed() -> None:
    at = INDICES["any order"].clone()
    graph = graph_of_index(at, ROWS)
    assert graph_of_index(at, ROWS) is graph
    assert graph_of_index(at, ROWS + 1) is not graph
    x = made(ROWS, (2,))
    at[3] = (at[3] + 1) % ROWS
    assert graph_of_index(at, ROWS) is not graph
    assert torch.equal(onehop.gather(x, at), x[at])


def test_the_gradient_is_that_of_the_index_as_it_was() -> None:
    x, at = made(ROWS, (2,)).requires_grad_(), INDICES["any order"].clone()
    out = onehop.gather(x, at)
    (expected,) = torch.autograd.grad(x[at].sum(), x)
    at.zero_()
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], expected)


def test_gathering_sorts_nothing_and_a_sorted_index_is_never_sorted() -> None:
    x, at = made(ROWS, (2,)).requires_grad_(), INDICES["any order"].clone()
    graph = graph_of_index(at, ROWS)
    assert isinstance(graph, Graph)
    out = onehop.gather(x, at)
    assert graph._csr is None
    assert graph.nbytes == 4 * ENTRIES
    out.sum().backward()
    assert graph._csr is not None
    assert graph._transpose is None
    assert graph.perm is None
    rows = at.argsort(stable=True)
    assert graph.col.tolist() == rows.tolist()
    assert graph.edge_index().tolist() == [rows.tolist(), at[rows].tolist()]
    assert graph.transpose().edge_index().tolist() == [at[rows].tolist(), rows.tolist()]
    ascending = graph_of_index(INDICES["sorted"], ROWS)
    assert ascending.col.tolist() == list(range(ENTRIES))


# Errors


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: onehop.gather(torch.ones(3, 2), torch.tensor([0, 3])),
            "index: entry 1 is 3, which is not in",
        ),
        (
            lambda: onehop.gather(torch.ones(3, 2), torch.tensor([-1])),
            r"index: entry 0 is -1, which is not in \[",
        ),
        (lambda: onehop.scatter(torch.ones(2, 2), torch.tensor([0, 4]), 4), "entry 1 is 4, which is not in"),
    ],
)
def test_numbers_out_of_range(call, sentence: str) -> None:
    with pytest.raises(IndexRangeError, match=sentence):
        call()


X, AT = torch.ones(3, 2), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: onehop.gather(X.int(), AT),
            "x: expected float32, float64, bfloat16 or float16, got torch.int32",
        ),
        (lambda: onehop.gather([1.0], AT), "x: expected a dense tensor, got list"),
        (lambda: onehop.gather(torch.tensor(1.0), AT), "x: expected at least one dimension"),
        (lambda: onehop.gather(X, [0]), "index: expected a tensor, got list"),
        (
            lambda: onehop.gather(X, AT.float()),
            "index: expected a one-dimensional int32 or int64 tensor, got torch.fl",
        ),
        (lambda: onehop.gather(X, AT.view(1, 2)), r"one-dimensional int32 or int64 tensor, got .* \[1, 2\]"),
        (lambda: onehop.gather(X, AT.to("meta")), "index: expected one on cpu, where x is, got meta"),
        (
            lambda: onehop.scatter(X, AT, 2),
            r"values: expected a row for each of the 2 entries of index, got .*\[3, 2\]",
        ),
        (
            lambda: onehop.scatter(X[:2], AT, 2, "prod"),
            "reduce: expected one of sum, mean, max, min, got 'prod'",
        ),
        (lambda: onehop.scatter(X[:2], AT, 2, "max", ties="any"), "ties: expected one of share, first, last"),
        (lambda: onehop.scatter(X[:2], AT, 2**31), "are more than the 2147483647"),
    ],
)
def test_errors(call, sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        call()
