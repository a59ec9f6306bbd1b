"""The nonzero coefficients of paths, in the order in which kernels use them."""

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onehop.irreps.clebsch_gordan import coupling
from onehop.irreps.paths import of_text


class Tables(NamedTuple):
    """Coefficients of "uvu" paths, as a list within a list within a list.

    A path has groups, one for each component of the result. A group has pairs, one for each component of the
    input that contributes to it. A pair has terms, one for each component of the harmonics. All are on the
    CPU and contiguous.

    Attributes:
        paths: int64 [P, 7]: the first column of the input and of the result, the first weight, the channels,
            the components of the input, the first group, and the end of the groups.
        groups: int32 [G, 3]: the component of the result, the first pair, and the end of the pairs.
        pairs: int32 [R, 3]: the component of the input, the first term, and the end of the terms.
        columns: int32 [T]: the column of the harmonics.
        factors: float64 [T]: the coefficient.
    """

    paths: Tensor
    groups: Tensor
    pairs: Tensor
    columns: Tensor
    factors: Tensor


@functools.lru_cache(256)
def tables_of(text: str, turned: bool) -> Tables:
    """Return the tables of paths whose modes are all "uvu"; paths without channels are omitted.

    Args:
        text: The paths, as ``TensorPaths.text``.
        turned: Whether the output is the input, and x the result, as in the gradient to x.
    """
    paths = of_text(text)
    starts = [_starts(irreps) for irreps in (paths.x, paths.harmonics, paths.out)]
    rows: list[list[list[float]]] = [[], [], [], [], []]
    weight = 0
    for path in paths.paths:
        channels = paths.x[path.x].multiplicity
        begins = starts[0][path.x], starts[1][path.harmonics], starts[2][path.out]
        degrees = paths.x[path.x].degree, paths.harmonics[path.harmonics].degree, paths.out[path.out].degree
        if channels:
            factors = coupling(*degrees) * path.factor
            _add_path(
                rows,
                factors.swapaxes(0, 2) if turned else factors,
                begins[::-1] if turned else begins,
                weight,
                channels,
            )
        weight += channels
    kinds = (np.int64, 7), (np.int32, 3), (np.int32, 3), (np.int32, 1), (np.float64, 1)
    tensors = [
        torch.from_numpy(
            np.array(each, kind).reshape(-1, width) if width > 1 else np.array(each, kind).reshape(-1)
        )
        for each, (kind, width) in zip(rows, kinds, strict=True)
    ]
    return Tables(*tensors)


def _add_path(
    rows: list[list[list[float]]],
    factors: np.ndarray,
    begins: tuple[int, int, int],
    weight: int,
    channels: int,
) -> None:
    """Add a path's rows to those of each field of :class:`Tables`."""
    paths, groups, pairs, columns, values = rows
    first_group = len(groups)
    for k in range(factors.shape[2]):
        first_pair = len(pairs)
        for i in range(factors.shape[0]):
            first_term = len(columns)
            for j in np.flatnonzero(factors[i, :, k]):
                columns.append(begins[1] + int(j))
                values.append(float(factors[i, j, k]))
            if len(columns) > first_term:
                pairs.append([i, first_term, len(columns)])
        if len(pairs) > first_pair:
            groups.append([k, first_pair, len(pairs)])
    paths.append([begins[0], begins[2], weight, channels, factors.shape[0], first_group, len(groups)])


def _starts(irreps: tuple) -> list[int]:
    """Return the first column of each irrep."""
    starts, column = [], 0
    for irrep in irreps:
        starts.append(column)
        column += irrep.dim
    return starts
