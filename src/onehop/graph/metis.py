"""METIS, through pymetis, if it is installed."""

import importlib.util

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ConfigurationError


def installed() -> bool:
    """Return whether pymetis is installed."""
    return importlib.util.find_spec("pymetis") is not None


def require(asked: str, instead: str) -> None:
    """Raises a ConfigurationError if pymetis is missing; the message names the package and an alternative."""
    if not installed():
        raise ConfigurationError(
            f"{asked}: pymetis is not installed. Install it with: pip install 'onehop[partition]', or take "
            f"{instead!r}."
        )


def parts_of(rowptr: Tensor, col: Tensor, parts: int, work: Tensor | None = None) -> Tensor:
    """Divide a symmetric graph without loops into parts of similar work with few cut edges; [N], int64.

    Takes rowptr [N + 1] and col [E], integers, and the work of each node, [N], integers; None means 1.
    """
    import pymetis

    # Arrays of METIS's own integer type are not copied, if pymetis reports the type.
    kind = pymetis.zero_copy_dtype() if hasattr(pymetis, "zero_copy_dtype") else np.int64
    starts, neighbours = (each.numpy().astype(kind, copy=False) for each in (rowptr, col))
    weights = None if work is None else work.numpy().astype(kind, copy=False)
    if hasattr(pymetis, "CSRAdjacency"):  # newer versions warn about the old call
        adjacency = pymetis.CSRAdjacency(starts, neighbours)
        _, labels = pymetis.part_graph(parts, adjacency, vweights=weights, recursive=False)
    else:
        _, labels = pymetis.part_graph(
            parts, xadj=starts, adjncy=neighbours, vweights=weights, recursive=False
        )
    return torch.from_numpy(np.array(labels, dtype=np.int64))
