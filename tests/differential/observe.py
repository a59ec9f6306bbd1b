"""What can be seen of a running program from outside, noted after every step."""

import hashlib
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

import onehop
from tests.differential.world import World, is_recorded, tensors_in, version_of

_ONEHOP, _TORCH = (Path(package.__path__[0]) for package in (onehop, torch))


@dataclass(frozen=True)
class Seen:
    """A tensor as it was."""

    facts: dict[str, Any]  # what must be exactly the same in both runs, by name
    value: Tensor | None  # a copy of the numbers; None where there are none


@dataclass(frozen=True)
class Observation:
    """What was seen after a step."""

    step: str  # what was done
    error: str | None  # the type of the exception that the step raised, or None
    message: str
    ours: bool  # whether onehop's code raised it, and not PyG's
    tensors: dict[str, Seen]  # every tensor that the program can reach, by name
    shared: frozenset[tuple[str, str]]  # pairs of names whose tensors share memory
    chance: str  # a digest of the state of torch's generator


def observe(world: World, step: str, error: Exception | None) -> Observation:
    """Notes what is to be seen now."""
    # A transform that raised may leave its wrappers in a module, where nothing can look into them.
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    named = {name: each for name, each in _reachable(world) if not wrapped(each[0])}
    state = torch.random.get_rng_state().numpy().tobytes()
    return Observation(
        step,
        None if error is None else type(error).__name__,
        "" if error is None else str(error),
        error is not None and _is_ours(error),
        {name: _seen(tensor, born) for name, (tensor, born) in named.items()},
        _shared({name: tensor for name, (tensor, _) in named.items()}),
        hashlib.blake2b(state, digest_size=8).hexdigest(),
    )


def _is_ours(error: Exception) -> bool:
    """Whether the line of Python that an error comes from, torch's own set aside, is onehop's."""
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    outside = [file for file in files if _TORCH not in file.parents]
    return bool(outside) and _ONEHOP in outside[-1].parents


def _reachable(world: World) -> list[tuple[str, tuple[Tensor, int]]]:
    """Name, tensor, and the version from which its writes count."""
    found: list[tuple[str, tuple[Tensor, int]]] = []
    for i, (out, born) in enumerate(world.outputs):
        found.append((f"output {i}", (out, born)))
        # After a batched gradient, what torch retained stands for a batch that is no more.
        batched = torch._C._functorch.is_legacy_batchedtensor
        if is_recorded(out) and out.retains_grad and out.grad is not None and not batched(out.grad):
            found.append((f"gradient of output {i}", (out.grad, version_of(out.grad))))
    for i, nodes in enumerate(world.nodes):
        found.append((f"features {i}", (nodes.x, 0)))
    for i, edges in enumerate(world.graphs):
        if isinstance(edges.index, Tensor) and edges.index.layout is torch.strided:
            index = edges.index.as_tensor() if isinstance(edges.index, EdgeIndex) else edges.index
            found.append((f"edges {i}", (index, 0)))
        if edges.values is not None:
            found.append((f"values {i}", (edges.values, 0)))
        if edges.weight is not None:
            found.append((f"edge weights {i}", (edges.weight, 0)))
    for i, model in enumerate(world.models):
        for name, each in [*model.named_parameters(), *model.named_buffers()]:
            if not isinstance(each, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer):
                found.append((f"model {i}: {name}", (each, 0)))
    for name, leaf in world.leaves():
        if leaf.is_leaf and leaf.grad is not None:
            found.append((f"gradient of {name}", (leaf.grad, version_of(leaf.grad))))
    for name, value in world.found.items():
        for i, tensor in enumerate(tensors_in(value)):
            found.append((f"{name} ({i})", (tensor, version_of(tensor))))
    return found


def _seen(tensor: Tensor, born: int) -> Seen:
    facts = {
        "dtype": tensor.dtype,
        "device": tensor.device.type,
        "shape": tuple(tensor.shape),
        "type": type(tensor).__name__,
        "requires_grad": tensor.requires_grad,
        "is_leaf": not is_recorded(tensor),
        "is_inference": tensor.is_inference(),
        "is_view": tensor._is_view(),
        "writes": version_of(tensor) - born,
        "is_contiguous": tensor.is_contiguous(),
    }
    with torch.no_grad():
        value = None if tensor.is_meta else tensor.detach().clone()
    return Seen(facts, value)


def _shared(tensors: dict[str, Tensor]) -> frozenset[tuple[str, str]]:
    """Pairs of names, in alphabetical order, whose tensors lie in the same memory."""
    places: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        if not tensor.is_meta and tensor.numel():
            places.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    pairs = set()
    for names in places.values():
        names.sort()
        pairs |= {(one, other) for i, one in enumerate(names) for other in names[i + 1 :]}
    return frozenset(pairs)
