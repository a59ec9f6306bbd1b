"""Runs a program from its start, with the patch or without, and notes what is to be seen after every step."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from unittest.mock import patch as replaced

import torch

import onehop
from onehop.thresholds import lifted
from tests.differential.observe import Observation, observe
from tests.differential.program import Program
from tests.differential.world import World, build


def run(program: Program, patched: bool, shaken: int | None = None) -> list[Observation]:
    """What was seen at the start and after every step.

    With a seed ``shaken`` every operand is scaled a few roundings up or down. What that changes is how far
    rounding alone may carry the program.
    """
    with _surroundings(program):
        world = None
        try:
            try:
                world = build(program, onehop.patch if patched else None)
            except Exception as error:
                # PyG refuses some combinations of options; then there is nothing to run.
                return [Observation("build", type(error).__name__, str(error), False, {}, frozenset(), "")]
            if shaken is not None:
                _shake(world, shaken)
            seen = [observe(world, "start", None)]
            seen.extend(_step(world, step) for step in program.steps)
            return seen
        finally:
            for hook in [] if world is None else world.hooks:
                hook.remove()


def _step(world: World, step: object) -> Observation:
    world.found.clear()
    error = None
    try:
        step.run(world)  # type: ignore[attr-defined]
    except Exception as raised:  # what is raised is compared
        error = raised
        # How far a backward pass came before it raised is nothing that anybody promises.
        for _, leaf in world.leaves():
            leaf.grad = None
    observed = observe(world, repr(step), error)
    if error is not None:
        error.with_traceback(None)  # its frames hold tensors
    return observed


@contextlib.contextmanager
def _surroundings(program: Program) -> Iterator[None]:
    """Inside the block nothing is left of other programs, and afterwards nothing of this one."""
    threads, default = torch.get_num_threads(), torch.get_default_dtype()
    environment = {"ONEHOP_CHECK": "full" if program.full_check else "version"}
    with (
        warnings.catch_warnings(),
        torch.random.fork_rng([]),
        replaced.dict(os.environ, environment),
        lifted() if program.tight else contextlib.nullcontext(),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            onehop.unpatch()
            onehop.clear_cache()
            torch.set_num_threads(threads)
            torch.set_default_dtype(default)
            torch.set_default_device(None)


def _shake(world: World, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    tensors = [nodes.held for nodes in world.nodes]
    tensors += [
        edges.held[-1] if len(edges.held) > 1 else edges.weight
        for edges in world.graphs
        if edges.weight is not None
    ]
    tensors += [edges.attr for edges in world.graphs]
    tensors += [each for model in world.models for each in model.parameters()]
    with torch.no_grad():
        for tensor in tensors:
            if not isinstance(tensor, torch.nn.UninitializedParameter):
                roundings = float(torch.randint(-4, 5, (1,), generator=chance))
                tensor.data.mul_(1.0 + roundings * torch.finfo(tensor.dtype).eps)
