"""Graphs and features that every process of a test can make for itself."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

NODES = 60


def hostile() -> torch.Tensor:
    """[2, E]: a hub, repeated edges, self loops, and nodes without edges."""
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(0, NODES - 5, (2, 500), generator=generator)
    edge_index[1, :120] = 7
    edge_index[:, 130:140] = edge_index[:, 120:130]
    edge_index[0, 140:150] = edge_index[1, 140:150]
    return edge_index


def random(*shape: int, seed: int = 2, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


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


def leave() -> None:
    """Ends the process group, when gloo's threads have let go of their tensors.

    torch 2.6 waits for these threads with the interpreter locked, and one that still has a tensor to free
    waits for the interpreter.
    """
    time.sleep(0.5)
    dist.destroy_process_group()
