"""Layers with messages of their own, compared with PyG."""

import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop

WIDTH = 6
_numbers = itertools.count()


def layer_of(message: Callable[..., Tensor]) -> gnn.MessagePassing:
    """A layer that sums such messages of [E, WIDTH]."""
    # PyG looks the function up by its own name, and renders one propagate for all classes of one name.
    function = types.FunctionType(message.__code__, message.__globals__, "message")
    function.__annotations__ = dict(message.__annotations__)

    class Mine(gnn.MessagePassing):
        message = function

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

    Mine.__name__ = f"Moving{next(_numbers)}"
    return Mine("sum")


def assert_pygs_numbers(
    message: Callable[..., Tensor], apart: bool, edge_index: Tensor, took_fast_path: Any, gradients_of: Any
) -> None:
    """Compares outputs and gradients with PyG's; the message runs in blocks where it keeps edges apart."""
    layer = layer_of(message)
    x = torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(0))

    def call(model: torch.nn.Module, x: Tensor) -> Tensor:
        return model(x, edge_index)

    expected = gradients_of(layer, call, x=x)
    with onehop.patch():
        found = gradients_of(layer, call, x=x)
        (reason,) = took_fast_path(layer, x, edge_index)
    assert (reason is None) == apart, reason
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-4, atol=1e-5)
