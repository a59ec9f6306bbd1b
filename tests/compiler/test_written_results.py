"""Messages write to elements of what torch's functions, methods of tensors and modules of torch return."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from onehop.compiler.functions import Opaque
from tests.compiler.test_bytecode import reading_of
from tests.compiler.test_reading import lists


def closed_over_maker(make):
    def message(self, x_j):
        out = make(x_j)
        out[0] = 1.0
        return out

    return message


def test_what_a_function_of_torch_makes_is_written_to():
    assert "message" in reading_of(closed_over_maker(torch.zeros_like)).names


def test_what_another_function_than_torchs_makes_is_not_written_to():
    with pytest.raises(Opaque, match="writes to elements of what make returns"):
        reading_of(closed_over_maker(lists))


def writing_to(name: str) -> Callable[..., Any]:
    """A message that writes to what a method of its operand returns."""
    made: dict[str, Any] = {}
    exec(f"def message(self, x_j):\n    out = x_j.{name}(0)\n    out[0] = 1.0\n    return out", made)
    return made["message"]


MAKING = [
    *("add", "clone", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "repeat", "reshape"),
    "view",
]


@pytest.mark.parametrize("name", MAKING)
def test_what_a_method_of_tensors_makes_is_written_to(name):
    assert "message" in reading_of(writing_to(name)).names


@pytest.mark.parametrize(
    "name", ["detach", "view_as", "expand", "split", "get", "values", "items", "lin", "inner", "helped"]
)
def test_what_other_methods_return_is_not_written_to(name):
    if name == "lin":  # a module of torch's
        assert "message" in reading_of(writing_to(name)).names
        return
    with pytest.raises(Opaque, match=f"writes to elements of what {name} returns"):
        reading_of(writing_to(name))


def of_the_first(self, x_j):
    named = self.named
    out = named.first(self)
    out[0] = 3.0
    return x_j


def of_the_second(self, x_j):
    named = self.named
    out = named.second(self)
    out[0] = 3.0
    return x_j


@pytest.mark.parametrize("message", [of_the_first, of_the_second])
def test_what_a_namesake_of_a_module_returns_is_not_written_to(message):
    with pytest.raises(Opaque, match=r"writes to elements of what (first|second) returns"):
        reading_of(message)
