"""What others put in the place of torch's functions and kernels, and what is left when the patch ends."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import onehop
from tests.integrations.torch.dispatched import CASES, operands, patched, served
from tests.integrations.torch.functions import FUNCTIONS, HELD, X, call, found
from tests.integrations.torch.indices import ANY
from tests.processes import run_python

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", ["torch.gather", "torch.index_add", "F.linear", "Tensor.index_select"])
def test_what_others_replace_under_the_patch_stays_theirs(name: str) -> None:
    owner, attribute, _ = FUNCTIONS[name]
    is_own = not isinstance(owner, type) or attribute in vars(owner)
    with patched():
        replaced = mock.patch.object(owner, attribute, return_value="theirs")
        replaced.start()
    assert call(name, X) == "theirs"
    replaced.stop()
    assert found(name) is HELD[name]
    assert is_own or attribute not in vars(owner)


@contextlib.contextmanager
def kernel(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """A kernel of a user's for the CPU, in the place of torch's."""
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl(name, function, "CPU", allow_override=True)
        yield
    finally:
        library._destroy()


def doubled(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return torch.stack([x.select(dim, int(each)) for each in index], dim) * 2


@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_a_kernel_of_a_users_runs(order: str) -> None:
    # PyG calls torch's index_select, so it is replaced for both.
    first, second = kernel("index_select", doubled), patched()
    with first if order == "theirs first" else second, second if order == "theirs first" else first:
        assert torch.equal(X.index_select(0, ANY), X[ANY] * 2)
    expected = X[ANY]
    assert torch.equal(X.index_select(0, ANY), expected)
    with served() as names:
        assert torch.equal(X.index_select(0, ANY), expected)
    assert "index_select" in names


def test_kernels_go_with_the_patch() -> None:
    with served() as names:
        X[ANY], X.index_select(0, ANY)
    assert names
    with served() as names, onehop.patch(indexing=False, products=False):
        for name in CASES:
            CASES[name](*operands("none", torch.float32))
    assert names <= {"dropout"}


def test_patching_says_nothing() -> None:
    program = (
        "import warnings, torch, onehop\n"
        "from onehop import thresholds\n"
        "warnings.simplefilter('error')\n"
        "torch.set_warn_always(True)\n"
        "for _ in range(2):\n"
        "    with onehop.patch(only='torch'), thresholds.lifted():\n"
        "        x, i = torch.randn(50, 4), torch.arange(50)\n"
        "        x[i], x.index_select(0, i), x.index_add(0, i, x), x @ x.t()\n"
    )
    done = run_python(["-c", program])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
