"""Graphs and features on disk that are measured."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from onehop.graph import stored

# The first row, how many sources to draw for the rows from there on, and the generator.
Draw = Callable[[int, int, Generator], Tensor]


def blocks(rows: int, degree: int, draw: Draw) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of so many drawn sources each, about a million edges at a time."""
    generator = torch.Generator().manual_seed(0)
    step = max((1 << 20) // degree, 1)
    for begin in range(0, rows, step):
        count = min(step, rows - begin)
        yield torch.full((count,), degree), draw(begin, count * degree, generator)


def uniform(nodes: int) -> Draw:
    """Sources that are drawn alike."""
    return lambda begin, count, generator: torch.randint(
        0, nodes, (count,), generator=generator, dtype=torch.int32
    )


def random_graph(folder: Path, nodes: int, destinations: int, degree: int) -> Path:
    """Writes a graph of random sources where it is not there yet; its folder."""
    path = folder / f"graph-{nodes}-{destinations}-{degree}"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        stored.write(path, nodes, blocks(destinations, degree, uniform(nodes)))
    return path


def features(folder: Path, nodes: int, width: int) -> Path:
    """Writes random features, float32, in Fortran order, where they are not there yet; their file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"x-{nodes}-{width}.npy"
    if path.exists():
        return path
    beside, rng = path.with_suffix(".tmp"), np.random.default_rng(1)
    with beside.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": True, "shape": (nodes, width)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(width):
            rng.standard_normal(nodes, dtype=np.float32).tofile(file)
    beside.rename(path)
    return path
