"""Layers whose message is compiled, against PyG."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop.integrations import reports


def call_over(edges: Tensor) -> Callable[..., Tensor]:
    """Calls a model with features, these edges, and whatever else it takes, in this order."""

    def call(model: Any, x: Tensor, **others: Tensor) -> Tensor:
        out: Tensor = model(x, edges, *others.values())
        return out

    return call


def assert_as_pygs(
    layer: torch.nn.Module,
    call: Callable[..., Tensor],
    operands: dict[str, Tensor],
    gradients_of: Callable[..., dict[str, Tensor]],
    rtol: float = 1e-9,
) -> reports.Call:
    """Compares outputs and all gradients, and returns how the first propagation of a call went."""
    expected = gradients_of(layer, call, **operands)
    with onehop.patch():
        found = gradients_of(layer, call, **operands)
        with reports.recorded() as calls:
            call(layer, **operands)
    assert {each.form for each in calls} == {"its message, compiled"}, calls
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name], tensor, rtol=rtol, atol=rtol / 10, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )
    return calls[0]
