"""Layers' own messages on graphs too small for a plan: hooks, replaced functions, and contexts."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import nn as gnn
from torch_geometric.explain import Explainer, GNNExplainer

import onehop
from tests.integrations.pyg.small_steps import (
    NODES,
    WIDTH,
    Everything,
    compare,
    numbers,
    ordinary as ordinary,
    ran as ran,
    some_edges,
)
from tests.integrations.same import Raised, assert_identical

HOOKS = {
    "propagate before": lambda layer, f: layer.register_propagate_forward_pre_hook(lambda m, i: f("p")),
    "propagate": lambda layer, f: layer.register_propagate_forward_hook(lambda m, i, o: f("q")),
    "message before": lambda layer, f: layer.register_message_forward_pre_hook(lambda m, i: f("m") or i),
    "message": lambda layer, f: layer.register_message_forward_hook(lambda m, i, o: o * 2),
    "aggregate before": lambda layer, f: layer.register_aggregate_forward_pre_hook(lambda m, i: f("a") or i),
    "aggregate": lambda layer, f: layer.register_aggregate_forward_hook(lambda m, i, o: o * 3),
    "of the module": lambda layer, f: layer.aggr_module.register_forward_hook(lambda m, i, o: o * 5),
    "of all modules": lambda layer, f: torch.nn.modules.module.register_module_forward_hook(
        lambda m, i, o: f(type(m).__name__)
    ),
    "a message of its own": lambda layer, f: vars(layer).update(message=lambda **a: a["x_j"] * 7),
    "an aggregate of its own": lambda layer, f: vars(layer).update(
        aggregate=lambda x, index, ptr, dim_size: x[:dim_size]
    ),
    "a forward of the module's": lambda layer, f: vars(layer.aggr_module).update(
        forward=lambda x, *a, **k: x[:3]
    ),
}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
def test_hooks_and_overrides(name: str, late: bool) -> None:
    """Whether they come before the first call or after some calls."""

    def heard_by(patched: bool) -> Any:
        heard: list[str] = []
        layer, x = Everything(), numbers(NODES, WIDTH)
        handle, results = None, []
        for turn in range(4):
            if turn == 2 * late:
                handle = HOOKS[name](layer, heard.append)
            results.append(layer(x, some_edges()))
        if hasattr(handle, "remove"):
            handle.remove()
        return results, heard

    expected = heard_by(False)
    with onehop.patch():
        assert_identical(heard_by(True), expected)


class Changing(gnn.MessagePassing):
    """A class whose functions are replaced between calls."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j * 2


def test_functions_of_the_class_that_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = Changing(), numbers(NODES, WIDTH)
    with onehop.patch():
        before = [layer(x, some_edges()) for _ in range(3)]
        monkeypatch.setattr(Changing, "message", lambda self, x_j: x_j * 3)
        torch.testing.assert_close(layer(x, some_edges()), before[0] * 1.5)
        monkeypatch.setattr(
            Changing, "aggregate", lambda self, inputs, index, ptr=None, dim_size=None: inputs[:2]
        )
        assert layer(x, some_edges()).shape == (2, WIDTH)
        monkeypatch.setattr(
            Changing, "_index_select", lambda self, src, index: src.index_select(0, index) * 0
        )
        assert not layer(x, some_edges()).any()


class Seen(TorchDispatchMode):
    """The operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def seen(run: Callable[[], Any]) -> Any:
    with Seen() as mode:
        out = run()
    return out, mode.names


class Sub(Tensor):
    """A class of a user's."""


CONTEXTS = {
    "operators": lambda layer, x: seen(lambda: layer(x, some_edges())),
    "autocast": lambda layer, x: _cast(lambda: layer(x, some_edges())),
    "inference": lambda layer, x: torch.inference_mode()(lambda: layer(x, some_edges()).clone())(),
    "vmap": lambda layer, x: torch.func.vmap(lambda y: layer(y, some_edges()))(torch.stack([x, x + 1])),
    "grad": lambda layer, x: torch.func.grad(lambda y: layer(y, some_edges()).sum())(x),
    "jvp": lambda layer, x: torch.func.jvp(lambda y: layer(y, some_edges()), (x,), (x,)),
    "hessian": lambda layer, x: torch.func.hessian(lambda y: layer(y, some_edges()).square().sum())(x[:, :1]),
    "a trace": lambda layer, x: torch.jit.trace(
        lambda y, e: layer(y, e), (x, some_edges()), check_trace=False
    )(x, some_edges().flip(1)),
    "a subclass": lambda layer, x: layer(x.as_subclass(Sub), some_edges()),
    "twice": lambda layer, x: _twice(layer, x.clone().requires_grad_()),
    "a checkpoint": lambda layer, x: _checkpointed(layer, x.clone().requires_grad_()),
}


def _cast(run: Callable[[], Any]) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return run()


def _twice(layer: Any, x: Tensor) -> Any:
    (first,) = torch.autograd.grad(layer(x, some_edges()).square().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), x)


def _checkpointed(layer: Any, x: Tensor) -> Any:
    out = torch.utils.checkpoint.checkpoint(layer, x, some_edges(), use_reentrant=False)
    return torch.autograd.grad(out.square().sum(), x)


class Multiplies(gnn.MessagePassing):
    """A product with a weight, so that autocast shows."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.weight = torch.nn.Parameter(numbers(1, 1, seed=4))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return (x_j[:, :1] @ self.weight) * (x_i - x_j).tanh()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts(name: str, aggr: str) -> None:
    layer, x = Multiplies(aggr=aggr), numbers(NODES, WIDTH)
    compare(lambda: CONTEXTS[name](layer, x))


@pytest.mark.parametrize("aggr", ["sum", "mean", "add"])
def test_a_write_between_forward_and_backward(aggr: str) -> None:
    def run() -> Any:
        edge_index, x = some_edges(), numbers(NODES, WIDTH).requires_grad_()
        out = Multiplies(aggr=aggr)(x, edge_index)
        edge_index[0, 0] = (edge_index[0, 0] + 1) % NODES
        return torch.autograd.grad(out.sum(), x)

    assert isinstance(compare(run), Raised)


def test_an_explainer() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Multiplies()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.layer(x, edge_index)

    model, x = Model(), numbers(NODES, WIDTH)

    def run() -> Any:
        model(x, some_edges())
        torch.manual_seed(5)
        explainer = Explainer(
            model,
            GNNExplainer(epochs=2),
            explanation_type="model",
            edge_mask_type="object",
            model_config={"mode": "regression", "task_level": "node"},
        )
        return explainer(x, some_edges()).edge_mask, model(x, some_edges())

    compare(run)


def test_explain_says_why(ran: list[str]) -> None:
    layer, x = Multiplies(), numbers(NODES, WIDTH)
    with onehop.patch():
        for _ in range(2):
            layer(x, some_edges())
        assert ran
        report = onehop.explain(layer, x, some_edges())
    assert "so few edges" in str(report)


def test_layers_that_the_patch_leaves_out(ran: list[str]) -> None:
    layer, x = Multiplies(), numbers(NODES, WIDTH)
    with onehop.patch(only=["GCNConv"]):
        for _ in range(3):
            layer(x, some_edges())
    assert not ran


class LooksAtItsCaller(gnn.MessagePassing):
    """A message that depends on the function that calls it."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j * (2 if "onehop" in sys._getframe(1).f_code.co_filename else 3)


def test_a_message_that_looks_at_its_caller(ran: list[str]) -> None:
    compare(lambda: LooksAtItsCaller()(numbers(NODES, WIDTH), some_edges()))
    assert not ran
