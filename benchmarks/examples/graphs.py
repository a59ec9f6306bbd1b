"""Seeded graphs with labels and features, in the shape of those that people train on."""

import math
import zlib

import torch
from torch import Tensor

# The share of edges within a class, about that of citation networks; the others go anywhere.
WITHIN_CLASS = 0.7
# More pairs are drawn than are needed: loops and pairs drawn twice are left out.
MORE = 1.3


def seeded(*name: object) -> torch.Generator:
    """A generator of its own for each data set: the script's random numbers stay as they would be."""
    return torch.Generator().manual_seed(zlib.crc32(repr(name).encode()))


def choices(upper: int, count: int, generator: torch.Generator) -> Tensor:
    """Numbers below ``upper``, all alike likely: int64 [count]."""
    return torch.randint(upper, (count,), generator=generator)


def uneven(upper: int, count: int, generator: torch.Generator) -> Tensor:
    """Numbers below ``upper``, small ones more often: int64 [count]."""
    return (torch.rand(count, generator=generator).square() * upper).long()


def labelled(
    nodes: int, edges: int, classes: int, generator: torch.Generator, directed: bool = False
) -> tuple[Tensor, Tensor]:
    """An edge index [2, edges] whose edges mostly join nodes of one class, and the classes [nodes].

    Args:
        nodes: How many.
        edges: How many, both directions counted where edges have both.
        classes: How many.
        generator: Where randomness comes from.
        directed: Whether an edge may stand without its reverse.
    """
    y = choices(classes, nodes, generator)
    order = y.argsort(stable=True)
    sizes = torch.bincount(y, minlength=classes)
    starts = sizes.cumsum(0) - sizes
    wanted = edges if directed else edges // 2
    drawn = math.ceil(MORE * wanted) + 16
    source = uneven(nodes, drawn, generator)
    of_class = (torch.rand(drawn, generator=generator) * sizes[y[source]]).long() + starts[y[source]]
    anywhere = choices(nodes, drawn, generator)
    within = torch.rand(drawn, generator=generator) < WITHIN_CLASS
    target = torch.where(within, order[of_class.clamp(max=nodes - 1)], anywhere)
    pairs = torch.stack([source, target])
    if not directed:
        pairs = pairs.sort(dim=0).values
    pairs = pairs[:, pairs[0] != pairs[1]].unique(dim=1)
    pairs = pairs[:, torch.randperm(pairs.size(1), generator=generator)[:wanted]]
    if not directed:
        pairs = torch.cat([pairs, pairs.flip(0)], dim=1)
    return pairs[:, (pairs[0] * nodes + pairs[1]).argsort()], y


def between(sources: int, targets: int, edges: int, generator: torch.Generator) -> Tensor:
    """An edge index [2, edges] from nodes of one type to nodes of another; every source has an edge."""
    first = torch.arange(min(sources, edges))
    source = torch.cat([first, uneven(sources, edges - first.numel(), generator)])
    return torch.stack([source, choices(targets, edges, generator)])


def words(y: Tensor, width: int, each: int, generator: torch.Generator) -> Tensor:
    """Bags of words [nodes, width] of zeros and ones: about half of a node's words are those of its class."""
    classes, nodes = int(y.max()) + 1, y.numel()
    band = max(width // classes, 1)
    own = y.unsqueeze(1) * band + torch.randint(band, (nodes, each), generator=generator)
    some = torch.randint(width, (nodes, each), generator=generator)
    chosen = torch.where(torch.rand(nodes, each, generator=generator) < 0.5, own, some)
    return torch.zeros(nodes, width).scatter_(1, chosen.clamp(max=width - 1), 1.0)


def dense(y: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Features [nodes, width] around a centre of each class."""
    centres = torch.randn(int(y.max()) + 1, width, generator=generator)
    return torch.randn(y.numel(), width, generator=generator).add_(centres[y])


def mask(nodes: int, index: Tensor) -> Tensor:
    """A bool mask [nodes] that is True at ``index``."""
    found = torch.zeros(nodes, dtype=torch.bool)
    found[index] = True
    return found


def masks(nodes: int, shares: tuple[int, int, int], generator: torch.Generator) -> dict[str, Tensor]:
    """Masks for training, validation and testing, of so many nodes each, drawn without replacement."""
    order = torch.randperm(nodes, generator=generator)
    first, second = shares[0], shares[0] + shares[1]
    parts = order[:first], order[first:second], order[second : second + shares[2]]
    return {
        f"{name}_mask": mask(nodes, part) for name, part in zip(("train", "val", "test"), parts, strict=True)
    }


def small(nodes: int, edges: int, generator: torch.Generator) -> Tensor:
    """The edge index of a small connected graph: a path, and edges drawn besides, both directions [2, E]."""
    path = torch.arange(nodes - 1)
    extra = max(edges // 2 - (nodes - 1), 0)
    first = torch.cat([path, choices(nodes, extra, generator)])
    second = torch.cat([path + 1, choices(nodes, extra, generator)])
    pairs = torch.stack([first, second]).sort(dim=0).values
    pairs = pairs[:, pairs[0] != pairs[1]].unique(dim=1)
    return torch.cat([pairs, pairs.flip(0)], dim=1)


def molecule(nodes: int, generator: torch.Generator) -> Tensor:
    """The edge index of something like a molecule: a tree of short branches and a ring or two [2, E]."""
    back = 1 + choices(2, nodes - 1, generator)
    child = torch.arange(1, nodes)
    parent = (child - back).clamp(min=0)
    rings = torch.arange(0, max(nodes - 6, 0), 9)
    first, second = torch.cat([parent, rings]), torch.cat([child, rings + 5])
    pairs = torch.stack([first, second]).unique(dim=1)
    return torch.cat([pairs, pairs.flip(0)], dim=1)
