"""Overloads of a function that stands in for another, before and after TorchScript has compiled them."""

import pytest
import torch
from torch import Tensor

from onehop.integrations.rows import share_overloads

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@torch.jit._overload
def theirs(x: int) -> int: ...


@torch.jit._overload
def theirs(x: Tensor) -> Tensor:  # noqa: F811
    ...


def theirs(x):  # noqa: F811
    return x + x


def ours(x):
    return x + x


def calls_theirs(x: int, y: Tensor) -> tuple[int, Tensor]:
    return theirs(x), theirs(y)


def calls_ours(x: int, y: Tensor) -> tuple[int, Tensor]:
    return ours(x), ours(y)


def test_overloads_that_are_compiled_already_are_shared() -> None:
    y = torch.ones(3)
    assert torch.jit.script(calls_theirs)(2, y)[0] == 4
    share_overloads(theirs, ours)
    number, tensor = torch.jit.script(calls_ours)(2, y)
    assert number == 4
    assert torch.equal(tensor, 2 * y)
