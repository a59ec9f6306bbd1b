"""Steps that call a model, in every context that torch offers."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.differential.program import Spec
from tests.differential.world import World, tensors_in


class _Watching(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class _Overriding(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def _double_by_default() -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if before is torch.float32 else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _default_device(name: str) -> Any:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


CONTEXTS: dict[str, Callable[[], Any]] = {
    "plain": contextlib.nullcontext,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device cpu": lambda: torch.device("cpu"),
    "device meta": lambda: torch.device("meta"),
    "default device meta": lambda: _default_device("meta"),
    "default dtype": _double_by_default,
    "dispatch mode": _Watching,
    "function mode": _Overriding,
    "saved on cpu": torch.autograd.graph.save_on_cpu,
    "saved copies": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor.detach().clone(), lambda tensor: tensor
    ),
    "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=False),
    "forked generator": lambda: torch.random.fork_rng([]),
    "no multithreading": lambda: torch.autograd.set_multithreading_enabled(False),
}


@dataclass(frozen=True, repr=False)
class Called(Spec):
    """A model, and what it is called with."""

    model: int = 0
    graph: int = 0
    features: int = 0
    weighted: bool = False  # whether the weights are given


@dataclass(frozen=True, repr=False)
class Call(Called):
    """Calls a model on a graph and features, and keeps what comes out."""

    context: str = "plain"  # in which context: a key of ``CONTEXTS``
    # 0: one tensor of features; 1: a pair of it and other features; 2: with its own first rows; 3: with
    # nothing for the destinations.
    pair: int = 0
    times: int = 1
    attention: bool = False  # whether attention weights are requested

    def run(self, world: World) -> None:
        for _ in range(self.times):
            with CONTEXTS[self.context]():
                out = called(world, self)
            world.keep(out)


def operands(world: World, call: Any) -> Any:
    """The features that a call is for, or a pair of them."""
    x = world.feature(call.features).operand()
    if call.pair == 1:
        return x, world.feature(call.features + 1).operand()
    if call.pair == 2:
        return x, x[..., : max(x.size(-2) // 2, 1), :]
    return (x, None) if call.pair == 3 else x


def called(world: World, call: Call) -> Any:
    """What a model gives out."""
    more = {"return_attention_weights": True} if call.attention else {}
    edges = world.edges_of(call.graph, call.weighted)
    return world.model(call.model)(operands(world, call), edges, **more)


@dataclass(frozen=True, repr=False)
class Checkpoint(Called):
    """Calls a model under activation checkpointing."""

    reentrant: bool = False  # which of torch's two ways
    times: int = 1

    def run(self, world: World) -> None:
        model, edges = world.model(self.model), world.edges_of(self.graph, self.weighted)
        world.checkpointed = True
        for _ in range(self.times):
            out = torch.utils.checkpoint.checkpoint(
                model, world.feature(self.features).operand(), edges, use_reentrant=self.reentrant
            )
            world.keep(out)


@dataclass(frozen=True, repr=False)
class Threads(Called):
    """Calls a model in other threads of Python."""

    # How many threads; with several no gradients are recorded, and the model is in evaluation: in which order
    # they would draw from the generator is not known.
    count: int = 1

    def run(self, world: World) -> None:
        outs: list[Any] = [None] * self.count
        errors: list[Exception] = []
        edges = world.edges_of(self.graph, self.weighted)
        model = world.model(self.model)
        training = model.training
        model.train(training and self.count == 1)

        def call(number: int) -> None:
            try:
                with torch.set_grad_enabled(self.count == 1):
                    outs[number] = model(world.feature(self.features).operand(), edges)
            except Exception as error:  # raised again below, where the program's step is
                errors.append(error)

        threads = [threading.Thread(target=call, args=(i,)) for i in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        model.train(training)
        if errors:
            raise errors[0]
        for out in outs:
            world.keep(out)


def function_of(world: World, call: Any) -> Callable[[Tensor], Tensor]:
    """The first output of a model as a function of the features alone."""
    model, edges = world.model(call.model), world.edges_of(call.graph, call.weighted)

    def function(x: Tensor) -> Tensor:
        return tensors_in(model(x, edges))[0]

    return function


@dataclass(frozen=True, repr=False)
class Transform(Called):
    """A transform of ``torch.func``, or one of ``torch.autograd.functional``, of a model."""

    name: str = "grad"  # which transform
    before: int = 0  # how often the model is called first

    def run(self, world: World) -> None:
        function = function_of(world, self)
        x = world.feature(self.features).operand()
        for _ in range(self.before):
            function(x)
        world.found["transformed"] = TRANSFORMS[self.name](function, x.detach(), world, self)


def _functional(function: Any, x: Tensor, world: World, call: Transform) -> Any:
    """The gradient of the parameters, as functions without state have it."""
    model, edges = world.model(call.model), world.edges_of(call.graph, call.weighted)
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(values: Any) -> Tensor:
        return tensors_in(torch.func.functional_call(model, values, (x, edges)))[0].sum()

    return list(torch.func.grad(loss)(parameters).values())


def _dual(function: Any, x: Tensor, world: World, call: Transform) -> Any:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        return list(forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))))


def _loss(function: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x).square().sum()


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda f, x, *_: torch.func.grad(lambda y: f(y).sum())(x),
    "functional call": _functional,
    "vjp": lambda f, x, *_: torch.func.vjp(f, x)[0],
    "jvp": lambda f, x, *_: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
    "vmap": lambda f, x, *_: torch.func.vmap(f)(torch.stack([x, x * 0.5])),
    "jacrev": lambda f, x, *_: torch.func.jacrev(f)(x),
    "dual": _dual,
    "jacobian": lambda f, x, *_: torch.autograd.functional.jacobian(f, x),
    "jacobian vectorized": lambda f, x, *_: torch.autograd.functional.jacobian(f, x, vectorize=True),
    "hessian": lambda f, x, *_: torch.autograd.functional.hessian(_loss(f), x),
    "hessian vectorized": lambda f, x, *_: torch.autograd.functional.hessian(_loss(f), x, vectorize=True),
    "vhp": lambda f, x, *_: torch.autograd.functional.vhp(_loss(f), x, torch.ones_like(x)),
}

SECOND_DERIVATIVES = ("hessian", "hessian vectorized", "vhp")
"""Those that differentiate a gradient."""
