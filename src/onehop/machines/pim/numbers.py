"""Number types in the machine: sums that cannot overflow, quantisation, and the bits of a multiply."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.plans.pim import PimPlan

TORCH_TYPES: dict[str, torch.dtype] = {
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float32": torch.float32,
    "float64": torch.float64,
}
NAMES = {dtype: name for name, dtype in TORCH_TYPES.items()}
ITEM_BYTES = {name: dtype.itemsize for name, dtype in TORCH_TYPES.items()}
INTEGERS = ("int8", "int16", "int32", "int64")
# Number of sampled values.
_SAMPLE = 1 << 20


@dataclass(frozen=True, slots=True)
class Quantised:
    """A tensor quantised to integers.

    Attributes:
        values: [N, F], integers.
        factor: [F] or [1]: the tensor is about ``values * factor``.
    """

    values: Tensor
    factor: Tensor


def largest(dtype: str) -> int:
    """Return the largest number of an integer type."""
    return (1 << (8 * ITEM_BYTES[dtype] - 1)) - 1


def quantise(x: Tensor, dtype: str, most: int, by_column: bool) -> Quantised:
    """Quantise x [N, F] symmetrically: the largest magnitude becomes ``most``; values round to the nearest.

    Args:
        x: [N, F], floats.
        dtype: The integer type.
        most: Largest magnitude of the integers.
        by_column: Whether each column has its own factor; if not, one factor is used for all.

    Raises:
        ArgumentError: x has NaN or an infinity, which no integer represents.
    """
    if not x.numel():
        return Quantised(x.to(TORCH_TYPES[dtype]), torch.ones(1, dtype=torch.float64, device="cpu"))
    magnitude = x.abs().amax(0) if by_column else x.abs().max().view(1)
    if not bool(torch.isfinite(magnitude).all()):
        raise ArgumentError(
            "x: expected finite numbers, for it is to be quantised, got NaN or infinity; use a float "
            "dtype in the plan, or correct the features."
        )
    # Use float64: in float32, 2^31 - 1 would be rounded up.
    factor = (magnitude.double() / most).clamp_(min=torch.finfo(torch.float32).tiny)
    values = (x.double() / factor).round_().clamp_(-most, most).to(TORCH_TYPES[dtype])
    return Quantised(values, factor)


def accumulator(plan: PimPlan, dtype: str, bound: int) -> str:
    """Return the dtype of the sums: the plan's, or the narrowest that holds every sum and partial sum.

    Raises:
        ArgumentError: The plan's accumulator, or every type, could overflow (``bound`` is an upper bound of
            all magnitudes); or the accumulator does not match the features.
    """
    if dtype not in INTEGERS:
        if plan.accumulator not in (None, dtype):
            raise ArgumentError(
                f"plan: accumulator of {dtype} features must be {dtype}, not {plan.accumulator}."
            )
        return dtype
    wide = [name for name in INTEGERS if ITEM_BYTES[name] >= ITEM_BYTES[dtype]]
    holding = [name for name in wide if bound <= largest(name)]
    if plan.accumulator is not None:
        if plan.accumulator not in wide:
            raise ArgumentError(
                f"plan: accumulator of {dtype} features must be one of {', '.join(wide)}, not "
                f"{plan.accumulator}."
            )
        if plan.accumulator not in holding:
            raise ArgumentError(_overflow(plan.accumulator, bound, holding))
        return plan.accumulator
    if not holding:
        raise ArgumentError(_overflow(wide[-1], bound, holding))
    return holding[0]


def _overflow(dtype: str, bound: int, holding: list[str]) -> str:
    remedy = f"use accumulator={holding[0]!r} or omit it" if holding else "scale the features down"
    return (
        f"plan: sums could reach {bound}, and {dtype} holds at most {largest(dtype)}: the largest feature "
        f"times the largest sum of weights of a row; {remedy}."
    )


def degree_bound(rowptr: np.ndarray, weight: np.ndarray | None) -> int:
    """Return the largest sum of absolute weights over a row; without weights, the largest degree.

    ``rowptr``: [rows + 1]; ``weight``: [E], integers in the graph's order.
    """
    if weight is None:
        return int(np.diff(rowptr).max(initial=0))
    if not len(weight):
        return 0
    if weight.dtype == np.int64:
        # Sums of 64-bit magnitudes may exceed 64 bits, so each row is summed in floats and rounded up a
        # little.
        starts = rowptr[:-1][np.diff(rowptr) > 0]
        sums = np.add.reduceat(np.abs(weight.astype(np.float64)), starts)
        return math.ceil(float(sums.max(initial=0.0)) * (1 + 1e-9))
    before = np.concatenate([[0], np.cumsum(np.abs(weight.astype(np.int64)))])
    return int((before[rowptr[1:]] - before[rowptr[:-1]]).max(initial=0))


def multiply_bits(x: Tensor, weight: Tensor) -> float:
    """Return the mean significant bits of the smaller of feature and weight, as the multiply routine sees it.

    Integers count as unsigned: a negative number uses all bits. A float counts as its significand without
    trailing zeros. Features and weights are assumed to be independent, and both are sampled.
    """
    bits_x, bits_w = _bit_shares(x), _bit_shares(weight)
    # The mean of the smaller is the sum over b of the probability that both have at least b bits.
    at_least_x = np.cumsum(bits_x[::-1])[::-1]
    at_least_w = np.cumsum(bits_w[::-1])[::-1]
    return float((at_least_x[1:] * at_least_w[1:]).sum())


def _bit_shares(values: Tensor) -> np.ndarray:
    flat = values.reshape(-1)
    if flat.numel() > _SAMPLE:
        flat = flat[:: flat.numel() // _SAMPLE]
    shares = np.zeros(66)
    if not flat.numel():
        shares[1] = 1.0
        return shares
    if flat.dtype.is_floating_point:
        mantissa, _ = np.frexp(flat.double().numpy())
        digits = 53 if flat.dtype == torch.float64 else 24
        whole = np.abs(np.nan_to_num(mantissa) * 2.0**digits).astype(np.uint64)
        trailing = whole & (~whole + np.uint64(1))
        lengths = np.where(whole > 0, _lengths(whole) - _lengths(trailing) + 1, 1)
    else:
        kind = f"u{flat.element_size()}"
        lengths = np.maximum(_lengths(flat.contiguous().numpy().view(kind).astype(np.uint64)), 1)
    counts = np.bincount(lengths.astype(np.int64), minlength=66)
    bit_shares: np.ndarray = counts / counts.sum()
    return bit_shares


def _lengths(whole: np.ndarray) -> np.ndarray:
    """Return the number of bits up to the highest bit that is set."""
    lengths = np.zeros(len(whole), dtype=np.int64)
    rest = whole.copy()
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >= np.uint64(1) << np.uint64(step)
        lengths[large] += step
        rest[large] >>= np.uint64(step)
    lengths[rest > 0] += 1
    return lengths
