"""Graphs and features on disk that are measured."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from onehop.graph import stored


def blocks(nodes: int, rows_of_all: int, degree: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Rows of random sources, a million edges at a time."""
    generator = torch.Generator().manual_seed(0)
    step = max((1 << 20) // degree, 1)
    for begin in range(0, rows_of_all, step):
        rows = min(step, rows_of_all - begin)
        col = torch.randint(0, nodes, (rows * degree,), generator=generator, dtype=torch.int32)
        yield torch.full((rows,), degree), col


def graph(folder: Path, nodes: int, destinations: int, degree: int) -> Path:
    """Writes a graph of random sources where it is not there yet; its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"graph-{nodes}-{destinations}-{degree}"
    if not path.exists():
        stored.write(path, nodes, blocks(nodes, destinations, degree))
    return path


def features(folder: Path, nodes: int, width: int, by_columns: bool) -> Path:
    """Writes random features, float32, where they are not there yet; their file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"x-{nodes}-{width}{'' if by_columns else '-rows'}.npy"
    if path.exists():
        return path
    beside, rng = path.with_suffix(".tmp"), np.random.default_rng(1)
    # A column at a time, or as many rows as take about the same memory.
    lines = width if by_columns else nodes
    shape, step = ((nodes,), 1) if by_columns else ((width,), max(nodes // width, 1))
    with beside.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": by_columns, "shape": (nodes, width)}
        np.lib.format.write_array_header_1_0(file, header)
        for begin in range(0, lines, step):
            rng.standard_normal((min(step, lines - begin), *shape), dtype=np.float32).tofile(file)
    beside.rename(path)
    return path
