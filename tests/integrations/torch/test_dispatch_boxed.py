"""Calls with arguments on a stack are served: of modes, and of torch.ops and TorchScript below autograd."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.integrations.same import outcome
from tests.integrations.torch.dispatched import (
    BAGS,
    CASES,
    COUNTED,
    MANY,
    READS_TEXTS,
    both,
    operands,
    patched,
    served,
    whole,
)
from tests.integrations.torch.indices import ANY, ENTRIES, LENGTHS, ODD, ROWS

_aten: Any = torch.ops.aten
BY_TEXT = ("scatter_reduce", "segment_reduce")
NUMBERS = torch.randint(0, 50, (300,), generator=torch.Generator().manual_seed(3))


class Passing(TorchDispatchMode):
    """Hands every operator on."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_under_a_mode(name: str) -> None:
    def run() -> Any:
        x, v = operands("both")
        with Passing():
            out = CASES[name](x, v)
        out.square().sum().backward()
        return out, x.grad, v.grad

    both(run)
    with served() as names, Passing():
        CASES[name](*operands("none", torch.float32))
    assert COUNTED[name] in names or (name.startswith(BY_TEXT) and not READS_TEXTS)


# Of x [ROWS, 4] and v [ENTRIES, 4]: what each operator's schema takes.
OPERATORS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "index": lambda x, v: _aten.index(x, [ANY]),
    "index of columns": lambda x, v: _aten.index(x, [None, ANY % 4]),
    "index by a mask": lambda x, v: _aten.index(x, [ODD]),
    "index_put_": lambda x, v: _aten._index_put_impl_(x.clone(), [ANY], v, True, False),
    "index_select": lambda x, v: _aten.index_select(x, 0, ANY),
    "gather": lambda x, v: _aten.gather(x, 0, MANY),
    "index_add": lambda x, v: _aten.index_add(x, 0, ANY, v),
    "index_add_": lambda x, v: _aten.index_add_(x.clone(), 0, ANY, v),
    "scatter_add": lambda x, v: _aten.scatter_add(x, 0, MANY, v),
    "scatter_add_": lambda x, v: _aten.scatter_add_(x.clone(), 0, MANY, v),
    "scatter": lambda x, v: _aten.scatter(x, 0, MANY, 3),
    "scatter_reduce": lambda x, v: _aten.scatter_reduce(x, 0, MANY, v, "mean", include_self=False),
    "scatter_reduce_": lambda x, v: _aten.scatter_reduce_(x.clone(), 0, MANY, v, "amax"),
    "segment_reduce": lambda x, v: _aten.segment_reduce(v, "max", lengths=LENGTHS),
    "embedding_dense_backward": lambda x, v: _aten.embedding_dense_backward(v, ANY, ROWS, -1, False),
    "_embedding_bag_dense_backward": lambda x, v: _aten._embedding_bag_dense_backward(
        x[: len(BAGS)], ANY, torch.repeat_interleave(LENGTHS), BAGS, LENGTHS, ROWS, False, 0, None, -1
    ),
    "unique": lambda x, v: _aten._unique2(NUMBERS, True, True, True),
    "unique of rows": lambda x, v: _aten.unique_dim(NUMBERS.view(-1, 2), 0, True, True, True),
    "sort": lambda x, v: _aten.sort(NUMBERS, stable=True, dim=0, descending=True),
    "isin": lambda x, v: _aten.isin(NUMBERS, NUMBERS[:9]),
    "mm": lambda x, v: _aten.mm(v, x.t()),
    "addmm": lambda x, v: _aten.addmm(x[:, 0].clone(), v, x.t()),
}
LEFT: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "index_add, twice": lambda x, v: _aten.index_add(x, 0, ANY, v, alpha=2),
    "index_add, by a fraction": lambda x, v: _aten.index_add(x, 0, ANY, v, alpha=0.5),
    "two indices": lambda x, v: _aten.index(x, [ANY, ANY % 4]),
    "out of range": lambda x, v: _aten.index_select(x, 0, ANY + ROWS),
    "another dimension": lambda x, v: _aten.gather(x, 5, MANY),
    "products": lambda x, v: _aten.scatter_reduce(x, 0, MANY, v, "prod"),
    "segments that begin with a number": lambda x, v: _aten.segment_reduce(
        v, "max", lengths=LENGTHS, initial=3
    ),
    "scatter of a fraction": lambda x, v: _aten.scatter(x, 0, MANY, 0.5),
    "index_put_ that assigns": lambda x, v: _aten._index_put_impl_(v.clone(), [ANY[:0]], v[:0], False, False),
}


@pytest.mark.parametrize("name", [*OPERATORS, *LEFT])
def test_in_inference_mode(name: str) -> None:
    def run() -> Any:
        x, v = operands("none", torch.float32)
        with torch.inference_mode():
            return (OPERATORS | LEFT)[name](x, v)

    both(run, raises=None, rtol=1e-6, atol=1e-6)
    with served() as names:
        outcome(run)
    if READS_TEXTS or not name.startswith(BY_TEXT):
        assert bool(names) == (name in OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_on_the_stack_has_as_many_owners_as_before(name: str) -> None:
    x, v = operands("none", torch.float32)
    shared = [x, v, ANY, MANY, NUMBERS, BAGS, LENGTHS]
    before = [tensor._use_count() for tensor in shared]
    with patched(), torch.inference_mode():
        for _ in range(3):
            results = OPERATORS[name](x, v)
            results = results if isinstance(results, tuple) else (results,)
            assert {result._use_count() for result in results} == {1}
        del results
    assert [tensor._use_count() for tensor in shared] == before


def pick(x: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = x[i]
    return (
        rows,
        x.index_select(0, i),
        torch.zeros_like(x).index_add_(0, i, v).scatter_add(0, i.unsqueeze(1).expand(-1, 4), v),
    )


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_torchscript_is_served(mode: Any) -> None:
    scripted = torch.jit.script(pick)

    def run() -> Any:
        with mode():
            return scripted(whole(ROWS, 4), ANY, whole(ENTRIES, 4))

    both(run)
    with served() as names:
        run()
    assert names == {"x[index]", "index_select", "index_add", "scatter_add"}
