"""Operands of every dtype, layout and size, those that overlap, and results that the caller gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import onehop
from onehop import thresholds
from onehop.integrations import rows
from tests.integrations.torch.dispatched import CASES, COUNTED, both, each_case, operands, served, whole
from tests.integrations.torch.indices import ANY, ENTRIES, LENGTHS, ODD, ROWS, SORTED

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
SERVED = ("x[i]", "index_select", "gather", "index_add", "scatter_add", "scatter_reduce mean")
REDUCTIONS = ("sum", "mean", "amax", "amin", "prod")
WIDE = ANY.unsqueeze(1).expand(-1, 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@each_case
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    def run() -> Any:
        x, v = operands("none", dtype)
        needs = dtype.is_floating_point or dtype.is_complex
        out = CASES[name](x.requires_grad_(needs), v.requires_grad_(needs))
        if not needs:
            return out
        return out, torch.autograd.grad(out.abs().sum(), (x, v), allow_unused=True)

    # Whole numbers are added up exactly; means and products are rounded.
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype, 1e-5)
    both(run, raises=None, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", SERVED)
def test_our_code_runs(name: str, dtype: torch.dtype) -> None:
    with served() as names:
        CASES[name](*operands("none", dtype))
    assert COUNTED[name] in names


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "turned": lambda x: x.t().contiguous().t(),
    "every other row": lambda x: torch.stack([x, x + 1], 1).flatten(0, 1)[::2],
    "every other column": lambda x: torch.stack([x, x + 1], 2).flatten(1)[:, ::2],
    "from an offset": lambda x: torch.cat([x[:1], x])[1:],
    "expanded": lambda x: x[:1].expand_as(x),
    "expanded columns": lambda x: x[:, :1].expand_as(x),
    "backwards": lambda x: x.flip(0),
    "conjugated": lambda x: torch.complex(x, x + 1).conj(),
    "negated": lambda x: torch.complex(x, -x).conj().imag,
    "a parameter": lambda x: torch.nn.Parameter(x.clone()),
    "of a larger memory": lambda x: x.new_zeros(1000).as_strided(x.shape, (5, 1), 7).copy_(x),
}


@pytest.mark.parametrize("which", ["x", "v"])
@pytest.mark.parametrize("layout", LAYOUTS)
@each_case
def test_layouts(name: str, layout: str, which: str) -> None:
    def run() -> Any:
        x, v = operands("none")
        x, v = (LAYOUTS[layout](x), v) if which == "x" else (x, LAYOUTS[layout](v))
        if x.is_complex() != v.is_complex():
            x, v = (each if each.is_complex() else torch.complex(each, each) for each in (x, v))
        out = CASES[name](x, v)
        return out, out.is_conj(), out.is_neg()

    both(run, raises=None)


INDICES: dict[str, Callable[[], Tensor]] = {
    "sorted": lambda: SORTED,
    "int32": lambda: ANY.int(),
    "strided": lambda: torch.stack([ANY, ANY + 100], 1)[:, 0],
    "expanded": lambda: ANY[:1].expand(ENTRIES),
    "from an offset": lambda: torch.cat([ANY[:7] + 100, ANY])[7:],
    "a row of a matrix": lambda: torch.stack([ANY + 100, ANY])[1],
    "one": lambda: ANY[:1],
    "none": lambda: ANY[:0],
    "a number": lambda: ANY[0],
    "a matrix": lambda: ANY.view(6, 10),
    "int16": lambda: ANY.short(),
    "floats": lambda: ANY.double(),
    "bool": lambda: ODD,
    "negative": lambda: ANY - ROWS,
    "too large": lambda: ANY + 2,
    "too large, at the end": lambda: torch.cat([ANY[:-1], torch.tensor([ROWS])]),
    "too small": lambda: ANY - 1,
    "the smallest": lambda: torch.where(ANY == 5, -(2**63), ANY),
    "the largest": lambda: torch.where(ANY == 5, 2**63 - 1, ANY),
    "beyond 32 bits": lambda: torch.where(ANY == 5, 2**32 + 5, ANY),
}


def wide(index: Tensor) -> Tensor:
    return index.unsqueeze(-1).expand(*index.shape, 4)


AT: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_select": lambda x, i, v: x.index_select(0, i),
    "index_select of columns": lambda x, i, v: x.t().contiguous().index_select(-1, i),
    "gather": lambda x, i, v: x.gather(0, wide(i)),
    "gather of copied entries": lambda x, i, v: x.gather(0, wide(i).contiguous()),
    "gather of columns": lambda x, i, v: x.t().contiguous().gather(1, i.expand(4, -1)),
    "index_add": lambda x, i, v: x.index_add(0, i, v[: i.numel()]),
    "index_add_": lambda x, i, v: x.clone().index_add_(0, i, v[: i.numel()]),
    "scatter_add": lambda x, i, v: x.scatter_add(0, wide(i), v),
    "scatter_add of copied entries": lambda x, i, v: x.scatter_add(0, wide(i).contiguous(), v),
    "scatter_add_": lambda x, i, v: x.clone().scatter_add_(-2, wide(i), v),
    "scatter_reduce": lambda x, i, v: x.scatter_reduce(0, wide(i), v, "mean"),
    "scatter_reduce_": lambda x, i, v: x.clone().scatter_reduce_(0, wide(i), v, "amax", include_self=False),
    "scatter": lambda x, i, v: x.scatter(0, wide(i), 3.0),
    "scatter, added up": lambda x, i, v: x.scatter(0, wide(i), v, reduce="add"),
    "take_along_dim": lambda x, i, v: x.take_along_dim(wide(i), 0),
    "embedding": lambda x, i, v: F.embedding(i, x),
    "embedding_bag": lambda x, i, v: F.embedding_bag(i, x, torch.tensor([0, 1, 1]), mode="sum"),
    "index_put_": lambda x, i, v: x.clone().index_put_((i,), v[: i.numel()], accumulate=True),
}


# What torch 2.13 gathers by an expanded index of int32 are not the rows that it names.
PAIRS = [(name, index) for name in AT for index in INDICES if (name, index) != ("gather", "int32")]


@pytest.mark.parametrize(("name", "index"), PAIRS)
def test_indices(name: str, index: str) -> None:
    both(lambda: AT[name](whole(ROWS, 4), INDICES[index](), whole(ENTRIES, 4)), raises=None)


OUT_OF_RANGE = (
    "index_select",
    "gather",
    "index_add",
    "scatter_add",
    "scatter_reduce",
    "embedding",
    "index_put_",
)


@pytest.mark.parametrize("index", ["too large", "too large, at the end", "the smallest", "beyond 32 bits"])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_indices_out_of_range_are_errors(name: str, index: str) -> None:
    both(lambda: AT[name](whole(ROWS, 4), INDICES[index](), whole(ENTRIES, 4)), raises=True)


@pytest.mark.parametrize("dim", range(-4, 4))
@pytest.mark.parametrize("name", ["index_select", "index_add", "gather", "scatter_add", "scatter_reduce"])
def test_dimensions(name: str, dim: int) -> None:
    def run() -> Any:
        x = whole(5, 6, 7).requires_grad_()
        size = x.shape[dim]
        index = ANY[:9] % size
        shape = list(x.shape)
        shape[dim] = 9
        v = whole(*shape, seed=4).requires_grad_()
        along = index.view([-1 if place == dim % 3 else 1 for place in range(3)]).expand(shape)
        out = {
            "index_select": lambda: x.index_select(dim, index),
            "index_add": lambda: x.index_add(dim, index, v),
            "gather": lambda: x.gather(dim, along),
            "scatter_add": lambda: x.scatter_add(dim, along, v),
            "scatter_reduce": lambda: x.scatter_reduce(dim, along, v, "mean", include_self=False),
        }[name]()
        return out, torch.autograd.grad(out.square().sum(), (x, v), allow_unused=True)

    both(run, raises=dim not in range(-3, 3))
    if dim in range(-3, 3):
        with served() as names:
            run()
        assert name in names


@pytest.mark.parametrize("of", ["nothing", "no columns", "no entries", "numbers", "vectors"])
@pytest.mark.parametrize("name", AT)
def test_small_sizes(name: str, of: str) -> None:
    x, i, v = {
        "nothing": (torch.zeros(0, 4), ANY[:0], torch.zeros(0, 4)),
        "no columns": (torch.zeros(ROWS, 0), ANY, torch.zeros(ENTRIES, 0)),
        "no entries": (torch.zeros(ROWS, 4), ANY[:0], torch.zeros(0, 4)),
        "numbers": (torch.tensor(3.0), ANY[0] * 0, torch.tensor(2.0)),
        "vectors": (torch.arange(11.0), ANY, torch.arange(60.0)),
    }[of]
    both(lambda: AT[name](x, i, v), raises=None)


@pytest.mark.parametrize("alpha", [2, 0.5, 0, -1, True, 2j, float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=str)
def test_factors(alpha: Any, dtype: torch.dtype) -> None:
    def run() -> Any:
        x, v = whole(ROWS, 4).to(dtype), whole(ENTRIES, 4).to(dtype)
        return x.index_add(0, ANY, v, alpha=alpha), torch.addmm(x[:, 0], v, x.t(), alpha=alpha, beta=alpha)

    both(run, raises=None)


@pytest.mark.parametrize("special", ["nan", "inf", "-inf", "-0.0", "both infinities"])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_reductions(reduce: str, own: bool, special: str) -> None:
    def run() -> Any:
        x, v = whole(ROWS, 4), whole(ENTRIES, 4)
        v[7] = x[2, 1] = float("inf" if special == "both infinities" else special)
        v[9] = float("-inf" if special == "both infinities" else special)
        v[11] = 0.0
        x.requires_grad_(), v.requires_grad_()
        out = x.scatter_reduce(0, WIDE, v, reduce, include_self=own)
        grads = torch.autograd.grad(out.nan_to_num(7, 8, 9).sum(), (x, v))
        return (
            out,
            grads,
            x.detach().scatter_reduce_(0, WIDE, v.detach(), reduce, include_self=own),
        )

    both(run)


@pytest.mark.parametrize("fewer", ["entries", "columns", "entries of v", "rows of x"])
@pytest.mark.parametrize("name", ["gather", "scatter_add", *REDUCTIONS])
def test_indices_of_some_entries(name: str, fewer: str) -> None:
    x, i, v = whole(ROWS, 4), WIDE % 7, whole(ENTRIES, 4)
    x, i, v = {
        "entries": (x, i[:9], v),
        "columns": (x, i[:, :3], v),
        "entries of v": (x, i, v[:9]),
        "rows of x": (x[:7, :3], i, v),
    }[fewer]
    runs: dict[str, Callable[[], Tensor]] = {
        "gather": lambda: x.gather(0, i),
        "scatter_add": lambda: x.scatter_add(0, i, v),
    }
    both(runs.get(name, lambda: x.scatter_reduce(0, i, v, name)), raises=None)


# Memory that is shared


def sharing(name: str) -> Any:
    x, base = whole(ROWS, 4), whole(80, 4)
    numbers, i = torch.arange(ROWS) % 3, torch.arange(ROWS)
    runs: dict[str, Callable[[], Any]] = {
        "index_add_ of itself": lambda: x.index_add_(0, i, x),
        "index_add_ of its turned self": lambda: x[:4].index_add_(0, i[:4], x[:4].t()),
        "index_add_ of a neighbour": lambda: base[:ROWS].index_add_(0, ANY, base[20:]),
        "index_add_ of what overlaps": lambda: base[:ROWS].index_add_(0, ANY, base[5:65]),
        "scatter_add_ of itself": lambda: x.scatter_add_(0, i.unsqueeze(1).expand(-1, 4), x),
        "scatter_add_ of what overlaps": lambda: base[:ROWS].scatter_add_(0, WIDE, base[5:65]),
        "scatter_reduce_ of itself": lambda: x.scatter_reduce_(0, i.unsqueeze(1).expand(-1, 4), x, "amax"),
        "index_put_ of itself": lambda: x.index_put_((i.flip(0),), x),
        "index_put_ of itself, added up": lambda: x.index_put_((numbers,), x, accumulate=True),
        "an index that is added to": lambda: numbers.index_add_(0, numbers, numbers),
        "an index that is read": lambda: numbers[numbers],
        "an index that is gathered": lambda: numbers.gather(0, numbers),
        "an index that is written to": lambda: numbers.index_put_((numbers,), torch.tensor(5)),
        "rows that overlap": lambda: whole(14).as_strided((ROWS, 4), (1, 1)).index_add_(0, ANY, whole(60, 4)),
        "rows that overlap, read": lambda: whole(14).as_strided((ROWS, 4), (1, 1)).index_select(0, ANY),
        "values that overlap": lambda: x.index_add_(0, ANY, whole(63).as_strided((60, 4), (1, 1))),
        "addmm_ of itself": lambda: x[:4].addmm_(x[:4], x[:4]),
        "mm into itself": lambda: torch.mm(x[:4], x[:4], out=x[:4]),
        "gather into its index": lambda: torch.gather(numbers, 0, i, out=i),
        "gather into itself": lambda: torch.gather(x, 0, WIDE[:ROWS], out=x),
        "index_select into itself": lambda: torch.index_select(x, 0, i, out=x),
    }
    if name == "":
        return list(runs)
    out = runs[name]()
    return out, out._version, x, base, numbers, i


@pytest.mark.parametrize("name", sharing(""))
def test_shared_memory(name: str) -> None:
    both(lambda: sharing(name), raises=None)


# Results that the caller gives


OUT: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_select": lambda x, v, out: torch.index_select(x, 0, ANY[:ROWS], out=out),
    "gather": lambda x, v, out: torch.gather(x, 0, WIDE[:ROWS], out=out),
    "take_along_dim": lambda x, v, out: torch.take_along_dim(x, WIDE[:ROWS], 0, out=out),
    "index_add": lambda x, v, out: torch.index_add(x, 0, ANY, v, out=out),
    "scatter_add": lambda x, v, out: torch.scatter_add(x, 0, WIDE, v, out=out),
    "scatter_reduce": lambda x, v, out: torch.scatter_reduce(x, 0, WIDE, v, "mean", out=out),
    "mm": lambda x, v, out: torch.mm(x, v[:4], out=out),
    "addmm": lambda x, v, out: torch.addmm(x, x, v[:4], out=out),
    "masked_select": lambda x, v, out: torch.masked_select(x, ODD.unsqueeze(1), out=out),
    "F.linear": lambda x, v, out: torch.ops.aten.linear.out(x, v[:4], None, out=out),
    "index": lambda x, v, out: torch.ops.aten.index.Tensor_out(x, [ANY[:ROWS]], out=out),
}
OUTS: dict[str, Callable[[], Tensor]] = {
    "of its size": lambda: torch.full((ROWS, 4), 9.0, dtype=torch.float64),
    "empty": lambda: torch.empty(0, dtype=torch.float64),
    "too large": lambda: torch.full((20, 9), 9.0, dtype=torch.float64),
    "turned": lambda: torch.full((4, ROWS), 9.0, dtype=torch.float64).t(),
    "a part": lambda: torch.full((ROWS, 9), 9.0, dtype=torch.float64)[:, 2:6],
    "float32": lambda: torch.empty(ROWS, 4),
    "int64": lambda: torch.empty(ROWS, 4, dtype=torch.int64),
    "a leaf": lambda: torch.empty(ROWS, 4, dtype=torch.float64).requires_grad_(),
    "expanded": lambda: torch.empty(1, 4, dtype=torch.float64).expand(ROWS, 4),
}


@pytest.mark.parametrize("needs", ["none", "both"])
@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("name", OUT)
def test_results_that_are_given(name: str, out: str, needs: str) -> None:
    def run() -> Any:
        given = OUTS[out]()
        found = OUT[name](*operands(needs), given)
        return found is given, found, found._version, found.data_ptr() == given.data_ptr()

    both(run, raises=None)


# Sizes


def test_small_ones_are_torchs(ordinary_bounds: None) -> None:
    with onehop.patch(only="torch"), rows.counted(everywhere=True) as counts:
        for name in CASES:
            CASES[name](*operands("none", torch.float32))
    assert [name for (name, ours), number in counts.items() if ours and number] == []


LARGE = 400_000


@pytest.mark.parametrize(
    "name", ["x[i]", "index_select", "gather", "index_add", "scatter_add", "scatter_reduce mean"]
)
def test_large_ones(name: str, ordinary_bounds: None) -> None:
    index = torch.randint(1000, (LARGE,), generator=torch.Generator().manual_seed(0))
    entries = index.unsqueeze(1).expand(-1, 16)
    x, v = whole(1000, 16).float(), whole(LARGE, 16).float()
    run: Callable[[], Tensor] = {
        "x[i]": lambda: x[index],
        "index_select": lambda: x.index_select(0, index),
        "gather": lambda: x.gather(0, entries),
        "index_add": lambda: x.index_add(0, index, v),
        "scatter_add": lambda: x.scatter_add(0, entries, v),
        "scatter_reduce mean": lambda: x.scatter_reduce(0, entries, v, "mean"),
    }[name]
    expected = run()
    with onehop.patch(only="torch"), rows.counted(everywhere=True) as counts:
        for _ in range(2):
            torch.testing.assert_close(run(), expected)
    onehop.clear_cache()
    assert counts[COUNTED[name], True] == 2


def test_one_entry_of_many_is_out_of_range(ordinary_bounds: None) -> None:
    index = torch.arange(LARGE) % 1000
    x, v = whole(1000, 16).float(), whole(LARGE, 16).float()
    for place in (0, LARGE // 2 + 1, LARGE - 1):
        wrong = index.clone()
        wrong[place] = 1000
        for function in (lambda i: x[i], lambda i: x.index_select(0, i), lambda i: x.index_add(0, i, v)):
            with pytest.raises(Exception) as expected:  # noqa: PT011
                function(wrong)
            with onehop.patch(only="torch"), pytest.raises(type(expected.value)) as found:
                function(wrong)
            assert str(found.value) == str(expected.value)


def test_a_threshold_is_read_at_each_call() -> None:
    x = whole(ROWS, 4).float()
    with onehop.patch(only="torch"), rows.counted(everywhere=True) as counts:
        for _ in range(2):
            with thresholds.lifted():
                x.index_select(0, ANY)
            x.index_select(0, ANY)
    onehop.clear_cache()
    assert counts["index_select", True] == 2


WRONG = (LENGTHS + 1, LENGTHS - 7, LENGTHS.double(), LENGTHS[:0], LENGTHS.view(1, -1))


@pytest.mark.parametrize("lengths", WRONG, ids=["too long", "negative", "floats", "none", "a matrix"])
def test_wrong_lengths_of_segments(lengths: Tensor) -> None:
    both(lambda: torch.segment_reduce(whole(ENTRIES, 4), "sum", lengths=lengths), raises=True)
