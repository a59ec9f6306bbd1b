"""Layers with messages of their own, compared with PyG."""

import itertools
import types
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.typing import OptTensor

from tests.integrations.same import SINGLE, reasons, same, step

WIDTH = 6
# What PyG renders for; it does not know the shorter way to write the second.
ANNOTATIONS = {"ptr": OptTensor, **dict.fromkeys(("size_i", "size_j", "dim_size"), Optional[int])}  # noqa: UP045
_numbers = itertools.count()


def as_message(message: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function by the name by which PyG looks it up; what it takes is annotated by its name."""
    code = message.__code__
    function = types.FunctionType(
        code, message.__globals__, "message", message.__defaults__, message.__closure__
    )
    taken = code.co_varnames[1 : code.co_argcount]
    function.__annotations__ = {name: ANNOTATIONS.get(name, Tensor) for name in taken}
    return function


def renamed(kind: type) -> type:
    """The class by a name of its own: PyG renders one propagate for all classes of one name."""
    kind.__name__ = f"Moving{next(_numbers)}"
    return kind


def layer_of(message: Callable[..., Tensor], **options: Any) -> gnn.MessagePassing:
    """A layer that sums such messages of [E, WIDTH]."""
    function = as_message(message)

    class Mine(gnn.MessagePassing):
        message = function

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

    return renamed(Mine)("sum", **options)


def assert_pygs_numbers(message: Callable[..., Tensor], apart: bool, edge_index: Tensor) -> None:
    """Compares outputs and gradients with PyG's; the message runs in blocks where it keeps edges apart."""
    x = torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(0))
    (reason,) = reasons(same(step(layer_of(message), x, edge_index), times=1, **SINGLE))
    assert (reason is None) == apart, reason
