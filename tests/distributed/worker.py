"""What workers do alike: they join the group, compare with one process, and say what they found.

A worker is a script that the test of its name runs, once for each rank.
"""

import datetime
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import onehop
from tests.distributed.cases import random


def join() -> tuple[int, int]:
    """Joins the group of all processes, with one thread; this rank and their number."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    return dist.get_rank(), dist.get_world_size()


def report(found: Mapping[str, Any]) -> None:
    """Says what was found, in a line of JSON, and leaves when all have come here."""
    sys.stdout.write(json.dumps(found) + "\n")
    dist.barrier()
    leave()


def leave() -> None:
    """Ends the process group, when gloo's threads have let go of their tensors.

    torch 2.6 waits for these threads with the interpreter locked, and one that still has a tensor to free
    waits for the interpreter.
    """
    time.sleep(0.5)
    dist.destroy_process_group()


def shared(makes: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Results that are the same on every rank, by name: each rank computes some, and all get all of them."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = {name: make() for place, (name, make) in enumerate(makes.items()) if place % ranks == rank}
    found: list[dict[str, Any]] = [{}] * ranks
    dist.all_gather_object(found, own)
    return {name: each for part in found for name, each in part.items()}


def with_pairs(place: int, partition: int) -> list[bool]:
    """Whether a model is tried with thresholds lifted, over a partition; places of both are given.

    It is tried over every partition, with thresholds and without them; where all forms run, in all four ways.
    """
    both = os.environ.get("ONEHOP_TESTS") == "all"
    return [False, True] if both else [(place + partition) % 2 > 0]


class Using(torch.nn.Module):
    """Modules, and a function that takes them and the operands."""

    def __init__(self, use: Callable[..., Any], *inner: torch.nn.Module) -> None:
        super().__init__()
        self.use, self.inner = use, torch.nn.ModuleList(inner)

    def forward(self, *operands: Any) -> Any:
        return self.use(*self.inner, *operands)


def two(first: torch.nn.Module, second: torch.nn.Module) -> Using:
    """Two layers with the same edges, and features of these if there are any."""
    return Using(lambda one, other, x, *edges: other(one(x, *edges).relu(), *edges), first, second)


def seeded(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """The same model every time."""
    torch.manual_seed(1)
    return make()


def sentence(call: Callable[[], object]) -> str:
    try:
        call()
    except (onehop.OnehopError, FileNotFoundError) as caught:
        return str(caught)
    return "no error"


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    """Those of all parameters, by name; zeros where there is none."""
    return {
        name: torch.zeros_like(each) if each.grad is None else each.grad.clone()
        for name, each in model.named_parameters()
    }


def difference(
    found: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    own: Callable[[str, Tensor], Tensor] = lambda name, whole: whole,
) -> float:
    """The largest to what one process gave, relative to the largest number of the part; NaN if there is one.

    ``own`` takes this process's rows of what one process gave under a name. What was not found is zero.
    """
    errors = [torch.zeros((), dtype=torch.float64)]
    for name, whole in expected.items():
        exact = own(name, whole)
        ours = found.get(name, torch.zeros_like(exact))
        assert ours.shape == exact.shape, name
        if exact.numel():
            errors.append((ours - exact).detach().abs().max() / exact.detach().abs().max().clamp(min=1))
    return float(torch.stack(errors).max())


Operands = Sequence[tuple[Tensor, Tensor | None]]


def compared(
    alone: Callable[..., Tensor], together: Callable[..., Tensor], operands: Operands, nodes: Tensor
) -> float:
    """The largest difference of outputs and of all gradients, between one process and all.

    Args:
        alone: Takes the operands as wholes.
        together: Takes their rows of this process.
        operands: Each with the numbers of these rows; with None every process has it as a whole, and its
            gradients are added up.
        nodes: The rows of the output that belong to this process.
    """
    leaves = [whole.clone().requires_grad_() for whole, _ in operands]
    mine = [(whole if rows is None else whole[rows]).clone().requires_grad_() for whole, rows in operands]
    out, local = alone(*leaves), together(*mine)
    assert local.shape == out[nodes].shape
    grad = random(*out.shape, seed=9, dtype=out.dtype)
    exact = torch.autograd.grad(out, leaves, grad)
    found = torch.autograd.grad(local, mine, grad[nodes])
    errors = [(local - out[nodes]).detach().abs()]
    for ours, theirs, (_, rows) in zip(found, exact, operands, strict=True):
        if rows is None:
            dist.all_reduce(ours)
        errors.append((ours - (theirs if rows is None else theirs[rows])).abs())
    return float(torch.stack([each.max() for each in errors if each.numel()] or [torch.zeros(())]).max())
