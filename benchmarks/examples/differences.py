"""How far the losses and the gradients of two processes lie apart."""

import math
from pathlib import Path

import torch
from torch import Tensor


def saved(file: Path) -> list[list[Tensor | None]]:
    """The gradients that a process has left in a file; none if no optimiser made a step."""
    return torch.load(file) if file.exists() else []


def of_gradients(theirs: list[list[Tensor | None]], ours: list[list[Tensor | None]]) -> float | None:
    """The largest relative difference of a parameter's gradients, by norms; None where they do not match.

    Gradients that are small beside the others of their optimiser, such as those of what a normalisation takes
    out again, are rounding: their difference counts as a share of a thousandth of the norm of all.

    An optimiser that was given a set of parameters has them in another order in every process: there,
    gradients are matched by their shapes and norms.

    Args:
        theirs: PyG's, by optimiser and parameter.
        ours: With the patch.
    """
    largest = 0.0
    if len(theirs) != len(ours):
        return None
    for all_theirs, all_ours in zip(theirs, ours, strict=True):
        if _shapes(all_theirs) != _shapes(all_ours):
            all_theirs, all_ours = _by_shape(all_theirs), _by_shape(all_ours)
        if _shapes(all_theirs) != _shapes(all_ours):
            return None
        pairs = [
            (a.to_dense(), b.to_dense())
            for a, b in zip(all_theirs, all_ours, strict=True)
            if a is not None and b is not None
        ]
        least = 1e-3 * math.sqrt(sum(float(a.norm()) ** 2 for a, _ in pairs))
        for a, b in pairs:
            scale = max(float(a.norm()), least)
            if scale:
                difference = float((a - b).norm()) / scale
                largest = max(largest, difference) if difference == difference else math.inf
    return largest


def _shapes(gradients: list[Tensor | None]) -> list[torch.Size | None]:
    return [None if each is None else each.shape for each in gradients]


def _by_shape(gradients: list[Tensor | None]) -> list[Tensor | None]:
    """Those that exist by shape and norm, then the others."""
    found = [each for each in gradients if each is not None]
    ordered = sorted(found, key=lambda each: (tuple(each.shape), float(each.norm())))
    return [*ordered, *[None] * (len(gradients) - len(found))]


def of_losses(theirs: list[float], ours: list[float]) -> dict[str, float] | None:
    """The relative difference of the first losses, and the largest of all; None where it cannot be told.

    Args:
        theirs: PyG's.
        ours: As many, or they cannot be compared.
    """
    if len(theirs) != len(ours) or not theirs:
        return None
    each = [
        0.0 if a == b or (a != a and b != b) else abs(a - b) / max(abs(a), abs(b))
        for a, b in zip(theirs, ours, strict=True)
    ]
    if any(value != value for value in each):
        return None
    return {"first": each[0], "largest": max(each)}
