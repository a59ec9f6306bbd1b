"""Steps that differentiate what came out, and train."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor

from tests.differential.calls import Call, called
from tests.differential.program import Spec
from tests.differential.world import World, tensors_in


def pulled(out: Tensor, layout: str, seed: int) -> Tensor:
    """A gradient for an output, in a layout."""
    chance = torch.Generator().manual_seed(seed)
    if layout == "expanded":
        return torch.ones((), dtype=out.dtype).expand(out.shape)
    pull = torch.randn(out.shape, generator=chance, dtype=torch.float64).to(out.dtype)
    if layout == "transposed" and pull.dim() > 1:
        return pull.mT.contiguous().mT
    if layout == "columns" and pull.dim() > 1:
        return pull.repeat_interleave(2, dim=-1)[..., ::2]
    return pull


@dataclass(frozen=True, repr=False)
class Backward(Spec):
    """Differentiates an output."""

    age: int = 0  # which output: 0 is the newest that has a gradient function
    layout: str = "plain"  # the memory layout of the incoming gradient
    retain: bool = False  # whether it may be done again
    times: int = 1
    seed: int = 0  # of the gradient that comes in

    def run(self, world: World) -> None:
        out = world.output(self.age, recorded=True)
        if out is None:
            return
        for _ in range(self.times):
            out.backward(pulled(out, self.layout, self.seed), retain_graph=self.retain)


@dataclass(frozen=True, repr=False)
class Gradient(Spec):
    """``torch.autograd.grad`` of an output, to every leaf."""

    age: int = 0  # which output: 0 is the newest that has a gradient function
    # "once", "batched" (several gradients in one pass), or "twice" (the gradient of the gradients).
    how: str = "once"
    layout: str = "plain"  # the memory layout of the incoming gradient
    seed: int = 0  # of the gradient that comes in

    def run(self, world: World) -> None:
        out = world.output(self.age, recorded=True)
        leaves = [(name, leaf) for name, leaf in world.leaves() if leaf.requires_grad]
        if out is None or not leaves:
            return
        pull = pulled(out, self.layout, self.seed)
        tensors = [leaf for _, leaf in leaves]
        if self.how == "batched":
            pulls = torch.stack([pull, pull * 0.5, torch.ones_like(pull)])
            grads = torch.autograd.grad(
                out, tensors, pulls, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
        elif self.how == "twice":
            first = torch.autograd.grad(out, tensors, pull, create_graph=True, allow_unused=True)
            loss = sum((each.square().sum() for each in first if each is not None), torch.zeros(()))
            world.found["first"] = list(first)
            grads = torch.autograd.grad(loss, tensors, retain_graph=True, allow_unused=True)
        else:
            grads = torch.autograd.grad(out, tensors, pull, retain_graph=True, allow_unused=True)
        world.found |= {name: grad for (name, _), grad in zip(leaves, grads, strict=True)}


@dataclass(frozen=True, repr=False)
class Train(Spec):
    """Trains a model, with an optimiser that stays."""

    call: Call = field(default_factory=Call)  # what is differentiated
    steps: int = 2  # steps of the optimiser
    accumulate: int = 1  # backward passes for each
    set_to_none: bool = True  # how gradients are taken away between steps
    adam: bool = False  # whether the optimiser is Adam, and not plain gradient descent
    checkpoint: bool = False  # whether under activation checkpointing

    def run(self, world: World) -> None:
        number = self.call.model % len(world.models)
        model = world.model(number)
        losses = []
        for _ in range(self.steps):
            for _ in range(self.accumulate):
                out = tensors_in(self._called(world))[0]
                loss = out.square().mean()
                loss.backward()
                losses.append(loss.detach())
            optimiser = world.optimisers.get(number)
            if optimiser is None:
                # After the first call, when lazy layers have their parameters.
                kind = torch.optim.Adam if self.adam else torch.optim.SGD
                optimiser = world.optimisers[number] = kind(model.parameters(), lr=0.01)
            optimiser.step()
            optimiser.zero_grad(set_to_none=self.set_to_none)
        world.found["losses"] = losses

    def _called(self, world: World) -> Any:
        if not self.checkpoint:
            return called(world, self.call)
        world.checkpointed = True
        return torch.utils.checkpoint.checkpoint(called, world, self.call, use_reentrant=False)
