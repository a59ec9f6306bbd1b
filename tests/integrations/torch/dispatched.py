"""Operations of torch whose kernels may be ours, and comparisons of what they do with and without the patch.

Everything above the kernels is torch's: autograd, hooks, modes, transforms, tracing, names of functions. So
a test gives a function of no arguments that tells what it saw, and ``both`` calls it without the patch and
under it.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric  # noqa: F401 - it replaces torch.index_select when it is imported
from torch import Tensor

import onehop
from onehop import thresholds
from onehop.integrations import rows
from onehop.kernels.products import ONEDNN
from onehop.tuner import products
from tests.integrations.same import Raised, outcome
from tests.integrations.torch.indices import ANY, ENTRIES, LENGTHS, ODD, ROWS, SORTED

# The names under which calls that our code served are counted, by the operations of CASES.
COUNTED = {
    "x[i]": "x[index]",
    "x[:, i]": "x[index]",
    "x[matrix]": "x[index]",
    "x[i] of numbers": "x[index]",
    "x[m]": "x[index]",
    "index_put_, added up": "index_put",
    "index_select": "index_select",
    "index_select of columns": "index_select",
    "gather": "gather",
    "index_add": "index_add",
    "index_add_": "index_add",
    "index_add of columns": "index_add",
    "index_add of sorted rows to zeros": "index_add",
    "scatter_reduce amax to zeros": "scatter_reduce",
    "scatter_add": "scatter_add",
    "scatter_add_": "scatter_add",
    "scatter_add of numbers": "scatter_add",
    "scatter_reduce sum": "scatter_reduce",
    "scatter_reduce mean": "scatter_reduce",
    "scatter_reduce amax": "scatter_reduce",
    "scatter_reduce amin": "scatter_reduce",
    "scatter_reduce_ mean, of others": "scatter_reduce",
    "segment_reduce": "segment_reduce",
    "linear": "addmm",
    "mm": "mm",
    "embedding": "index_select",
}
# torch 2.6 was built with older texts, which are not read from a stack.
READS_TEXTS = torch.__version__ >= (2, 7)
# What torch's formulas call in a backward pass.
COUNTED_BACKWARD = {
    "x[i]": "index_put",
    "index_select": "index_add",
    "gather": "scatter_add",
    "index_add": "index_select",
    "scatter_add": "gather",
    "embedding": "embedding_dense_backward",
    **({"segment_reduce": "segment_reduce_backward"} if READS_TEXTS else {}),
    "linear": "mm",
    "mm": "mm",
}

DISTINCT = torch.arange(ENTRIES).flip(0)
BAGS = torch.cat([torch.zeros(1, dtype=torch.int64), LENGTHS.cumsum(0)[:-1]])
MANY = ANY.unsqueeze(1).expand(-1, 4)

# Of x [ROWS, 4] and v [ENTRIES, 4].
Case = Callable[[Tensor, Tensor], Tensor]
CASES: dict[str, Case] = {
    "x[i]": lambda x, v: x[ANY] * v,
    "x[:, i]": lambda x, v: x[:, ANY % 4],
    "x[..., i]": lambda x, v: x[..., ANY % 4],
    "x[matrix]": lambda x, v: x[ANY.view(6, 10)],
    "x[i] of numbers": lambda x, v: x[:, 0].clone()[ANY] * v[:, 0],
    "x[i, j]": lambda x, v: x[ANY, ANY % 4],
    "x[i - n]": lambda x, v: x[ANY - ROWS],
    "x[m]": lambda x, v: x[ODD],
    "masked_select": lambda x, v: x.masked_select(ODD.unsqueeze(1)),
    "index_put": lambda x, v: v.index_put((DISTINCT[:ROWS],), x),
    "index_put_, added up": lambda x, v: x.mul(1).index_put_((ANY,), v, accumulate=True),
    "x[i] = v": lambda x, v: put(v.mul(1), DISTINCT[:ROWS], x),
    "index_select": lambda x, v: x.index_select(0, ANY) * v,
    "index_select of columns": lambda x, v: x.index_select(1, ANY % 4),
    "gather": lambda x, v: x.gather(0, MANY) * v,
    "gather of entries": lambda x, v: x.gather(1, (MANY[:ROWS] + torch.arange(4)) % 4),
    "take_along_dim": lambda x, v: x.take_along_dim(MANY, 0) * v,
    "index_add": lambda x, v: x.index_add(0, ANY, v),
    "index_add_": lambda x, v: x.mul(1).index_add_(0, ANY, v),
    "index_add of columns": lambda x, v: x.t().contiguous().index_add(1, ANY, v.t().contiguous()),
    "index_add, twice": lambda x, v: x.index_add(0, ANY, v, alpha=2),
    "index_add of sorted rows to zeros": lambda x, v: torch.zeros_like(x).index_add(0, SORTED, v * x[SORTED]),
    "scatter_add of numbers": lambda x, v: x[:, 0].clone().scatter_add(0, ANY, v[:, 0].clone()),
    "scatter_reduce amax to zeros": lambda x, v: torch.zeros_like(x).scatter_reduce(0, MANY, v, "amax") + x,
    "scatter_add": lambda x, v: x.scatter_add(0, MANY, v),
    "scatter_add_": lambda x, v: x.mul(1).scatter_add_(0, MANY, v),
    "scatter_reduce sum": lambda x, v: x.scatter_reduce(0, MANY, v, "sum"),
    "scatter_reduce mean": lambda x, v: x.scatter_reduce(0, MANY, v, "mean"),
    "scatter_reduce amax": lambda x, v: x.scatter_reduce(0, MANY, v, "amax"),
    "scatter_reduce amin": lambda x, v: x.scatter_reduce(0, MANY, v, "amin"),
    "scatter_reduce prod": lambda x, v: x.scatter_reduce(0, MANY, v, "prod"),
    "scatter_reduce_ mean, of others": lambda x, v: x.mul(1).scatter_reduce_(
        0, MANY, v, "mean", include_self=False
    ),
    "scatter_reduce amax, of others": lambda x, v: x.scatter_reduce(0, MANY, v, "amax", include_self=False),
    "segment_reduce": lambda x, v: torch.segment_reduce(v, "sum", lengths=LENGTHS, unsafe=True) + x,
    "segment_reduce mean": lambda x, v: torch.segment_reduce(v, "mean", lengths=LENGTHS, unsafe=True) * x,
    "segment_reduce max": lambda x, v: torch.segment_reduce(v, "max", lengths=LENGTHS, unsafe=True) * x,
    "linear": lambda x, v: F.linear(v, x, x[:, 0].clone()),
    "mm": lambda x, v: torch.mm(v, x.t()),
    "v @ x.t()": lambda x, v: v @ x.t(),
    "addmm": lambda x, v: torch.addmm(x[:, 0].clone(), v, x.t(), beta=2, alpha=3),
    "bmm": lambda x, v: torch.bmm(v.view(6, 10, 4), x.t().expand(6, 4, ROWS)),
    "embedding": lambda x, v: F.embedding(ANY, x) * v,
    "embedding with padding": lambda x, v: F.embedding(ANY, x, padding_idx=4) * v,
    "embedding_bag sum": lambda x, v: F.embedding_bag(ANY, x, BAGS, mode="sum"),
    "embedding_bag mean": lambda x, v: F.embedding_bag(ANY, x, BAGS, mode="mean"),
    "embedding_bag max": lambda x, v: F.embedding_bag(ANY, x, BAGS, mode="max"),
    "embedding_bag with weights": lambda x, v: F.embedding_bag(
        ANY, x, BAGS, mode="sum", per_sample_weights=v[:, 0]
    ),
    "embedding_bag with padding": lambda x, v: F.embedding_bag(ANY, x, BAGS, mode="mean", padding_idx=4),
    "embedding_bag of int32": lambda x, v: F.embedding_bag(
        ANY.int(), x, BAGS.int(), mode="mean", include_last_offset=True
    ),
    "embedding_bag by frequency": lambda x, v: F.embedding_bag(
        ANY, x, BAGS, mode="sum", scale_grad_by_freq=True
    ),
}


def put(x: Tensor, key: Any, value: Any) -> Tensor:
    """``x[key] = value``, of which ``x`` is returned."""
    x[key] = value
    return x


def whole(*shape: int, seed: int = 1) -> Tensor:
    """Numbers whose sums are exact in every order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).double()


def operands(needs: str = "both", dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """``x`` and ``v``, of which "none", "x", "v" or "both" need a gradient; new ones each time."""
    x, v = whole(ROWS, 4).to(dtype), whole(ENTRIES, 4, seed=2).to(dtype)
    return x.requires_grad_(needs in ("x", "both")), v.requires_grad_(needs in ("v", "both"))


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """The patch of torch, with which small tensors are served too."""
    try:
        # In a library other than torch's own: torch's kernel runs where that is the fastest.
        with onehop.patch(only="torch"), thresholds.lifted(), products.forced(ONEDNN):
            yield
    finally:
        onehop.clear_cache()  # the indices live as long as their module


@contextlib.contextmanager
def served() -> Iterator[set[str]]:
    """The patch; afterwards the set has the names of what our code ran."""
    names: set[str] = set()
    with patched(), rows.counted(everywhere=True) as counts:
        yield names
    names |= {name.rstrip("_") for (name, ours), number in counts.items() if ours and number}


def same(found: Any, expected: Any, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    """Fails unless two outcomes are alike: numbers nearly, everything else exactly."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, Tensor):
        one, other = ((x.dtype, x.shape, x.device, x.layout, x.requires_grad) for x in (found, expected))
        assert one == other, (one, other)
        if expected.layout is torch.strided:
            assert found.stride() == expected.stride(), (found.stride(), expected.stride())
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    elif isinstance(expected, dict):
        assert list(found) == list(expected), (found, expected)
        same(list(found.values()), list(expected.values()), rtol, atol)
    elif isinstance(expected, tuple | list) and not isinstance(expected, Raised):
        assert len(found) == len(expected), (found, expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, rtol, atol)
    else:
        assert found == expected, (found, expected)


def both(
    run: Callable[[], Any],
    raises: bool | None = False,
    times: int = 2,
    rtol: float = 1e-12,
    atol: float = 1e-12,
) -> Any:
    """Fails unless a function tells the same under the patch as before and after it.

    Args:
        run: Tells what it saw: tensors, names, numbers, nested; or raises an error.
        raises: Whether it raises one; None if it may.
        times: How often it is called under the patch.
        rtol: Relative tolerance of numbers.
        atol: Absolute tolerance of numbers.

    Returns:
        What it tells without the patch.
    """
    expected = outcome(run)
    if raises is not None:
        assert isinstance(expected, Raised) == raises, str(expected)[:300]
    with patched():
        found = [outcome(run) for _ in range(times)]
    for each in (*found, outcome(run)):
        same(each, expected, rtol, atol)
    return expected


each_case = pytest.mark.parametrize("name", CASES)
