"""The nonzero coefficients of paths, in the order in which kernels use them."""

import functools
import itertools
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.irreps.clebsch_gordan import coupling
from onehop.irreps.notation import Irrep
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

    Raises:
        ArgumentError: A path is not "uvu".
    """
    paths, rows = of_text(text), _Rows([], [], [], [], [])
    if paths.unmixed is not paths:
        raise ArgumentError(f'paths: kernels take paths of mode "uvu", got {text!r}.')
    begins_of = _begins(paths.x), _begins(paths.harmonics), _begins(paths.out)
    weight = 0
    for path in paths.paths:
        channels = paths.x[path.x].multiplicity
        x, harmonics, out = (begins[place] for begins, place in zip(begins_of, path[:3], strict=True))
        degrees = paths.x[path.x].degree, paths.harmonics[path.harmonics].degree, paths.out[path.out].degree
        factors = coupling(*degrees) * path.factor
        if channels:
            ends = (out, x) if turned else (x, out)
            _add_path(rows, factors.swapaxes(0, 2) if turned else factors, ends, harmonics, weight, channels)
        weight += channels
    return Tables(
        paths=torch.tensor(rows.paths, dtype=torch.int64, device="cpu").view(-1, 7),
        groups=torch.tensor(rows.groups, dtype=torch.int32, device="cpu").view(-1, 3),
        pairs=torch.tensor(rows.pairs, dtype=torch.int32, device="cpu").view(-1, 3),
        columns=torch.tensor(rows.columns, dtype=torch.int32, device="cpu"),
        factors=torch.tensor(rows.factors, dtype=torch.float64, device="cpu"),
    )


class _Rows(NamedTuple):
    """The rows of the fields of :class:`Tables`."""

    paths: list[list[int]]
    groups: list[list[int]]
    pairs: list[list[int]]
    columns: list[int]
    factors: list[float]


def _add_path(
    rows: _Rows,
    factors: NDArray[np.float64],
    ends: tuple[int, int],
    harmonics: int,
    weight: int,
    channels: int,
) -> None:
    """Add a path.

    Args:
        rows: The rows so far.
        factors: The coefficients, [components of the input, of the harmonics, of the result].
        ends: The first column of the input and of the result.
        harmonics: The first column of the harmonics.
        weight: The first weight.
        channels: The number of channels.
    """
    components, _, results = factors.shape
    first_group = len(rows.groups)
    for k in range(results):
        first_pair = len(rows.pairs)
        for i in range(components):
            first_term = len(rows.columns)
            for j in factors[i, :, k].nonzero()[0].tolist():
                rows.columns.append(harmonics + j)
                rows.factors.append(factors[i, j, k].item())
            if len(rows.columns) > first_term:
                rows.pairs.append([i, first_term, len(rows.columns)])
        if len(rows.pairs) > first_pair:
            rows.groups.append([k, first_pair, len(rows.pairs)])
    rows.paths.append([*ends, weight, channels, components, first_group, len(rows.groups)])


def _begins(irreps: tuple[Irrep, ...]) -> list[int]:
    """Return the first column of each irrep."""
    return [0, *itertools.accumulate(irrep.dim for irrep in irreps)]
