"""The fit of the links to half of the measured transfers, and the errors of the fit on the other half."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import correlation, fmean, linear_regression

import numpy as np

from onehop.errors import ArgumentError
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.links import push_ns, retrieve_ns
from onehop.machines.pim.measured import FITTED, TRANSFERS, Transfer

# A correlation of fewer points has no meaning.
_LEAST = 2
DIRECTIONS = ("to the cores", "from the cores")


@dataclass(frozen=True, slots=True)
class Errors:
    """Agreement of a model with measurements.

    Attributes:
        points: Number of measurements.
        r2: Square of the correlation of times, the measure that uPIMulator reports. None if all measurements
            have the same size, because the model then gives one time.
        mean_error: Mean of the absolute relative errors.
        bias: Mean of the relative errors; positive if the model is slower than the hardware.
        worst: The relative error with the largest magnitude.
    """

    points: int
    r2: float | None
    mean_error: float
    bias: float
    worst: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> "Errors":
        """Return the errors for pairs of a measured and a modelled time.

        Args:
            pairs: At least two pairs, not all with the same measured time.

        Raises:
            ArgumentError: There are fewer than two pairs.
        """
        points = list(pairs)
        if len(points) < _LEAST:
            raise ArgumentError(f"pairs: expected at least {_LEAST} measurements, got {len(points)}.")
        errors = [model / time - 1 for time, model in points]
        alike = len({model for _, model in points}) == 1
        return cls(
            len(points),
            None if alike else correlation(*zip(*points, strict=True)) ** 2,
            fmean(map(abs, errors)),
            fmean(errors),
            max(errors, key=abs),
        )


def modelled_ms(config: PimConfig, transfer: Transfer, direction: str) -> float:
    """Return the time of a transfer by cores of one rank over a machine's links, in a direction."""
    few = config.with_(cores=transfer.cores, ranks=1)
    if direction == DIRECTIONS[0]:
        return push_ns(few, transfer.cores * transfer.in_bytes) / 1e6
    return retrieve_ns(few, np.array([float(transfer.out_bytes)]), reuse_buffers=False) / 1e6


def pairs(config: PimConfig, direction: str, cores: int | None = None) -> list[tuple[float, float]]:
    """Return measured and modelled ms of the held-out transfers; ``cores`` selects one number of cores."""
    return [
        (ms, modelled_ms(config, each, direction))
        for each, _, ms in _moved(direction)
        if cores in (None, each.cores) and each.benchmark not in FITTED
    ]


def fitted(config: PimConfig, direction: str) -> tuple[float, float]:
    """Fit the GB/s of one core and of a full rank to half of the measured transfers.

    The bandwidth is a power of the number of cores. The fit minimises the squared errors of the logarithms,
    so every transfer has the same weight.

    Args:
        config: The machine; the fit uses its latency and the number of cores in a full rank.
        direction: One of :data:`DIRECTIONS`.

    Examples:
        >>> from onehop.machines import pim
        >>> from onehop.machines.pim.calibration import fitted
        >>> core_gbps, rank_gbps = fitted(pim.preset("upmem_v1a"), "to the cores")
        >>> round(core_gbps, 2), round(rank_gbps, 2)
        (0.68, 3.98)
    """
    links, points = config.links, []
    for transfer, sent, ms in _moved(direction):
        if transfer.benchmark in FITTED:
            gbps = transfer.cores * sent / (ms * 1e6 - links.call_us * 1e3)
            points.append((math.log(min(transfer.cores, links.full_rank_cores)), math.log(gbps)))
    slope, one = linear_regression(*zip(*points, strict=True))
    return math.exp(one), math.exp(one + slope * math.log(links.full_rank_cores))


def _moved(direction: str) -> list[tuple[Transfer, int, float]]:
    """Return the transfers in a direction, each with the bytes per core and the milliseconds."""
    if direction == DIRECTIONS[0]:
        return [(each, each.in_bytes, each.in_ms) for each in TRANSFERS]
    return [(each, each.out_bytes, each.out_ms) for each in TRANSFERS if each.out_bytes]


def held_out(config: PimConfig) -> dict[str, Errors]:
    """Return the errors in both directions, for all held-out transfers and for each number of cores.

    config: The machine; the measurements were made on an UPMEM server.
        config: The machine; the measurements are of an UPMEM server.

    Examples:
        >>> from onehop.machines import pim
        >>> from onehop.machines.pim.calibration import held_out
        >>> errors = held_out(pim.preset("upmem_v1a"))["to the cores"]
        >>> errors.points, round(errors.r2, 2)
        (27, 0.94)
    """
    errors = {}
    for direction in DIRECTIONS:
        errors[direction] = Errors.of(pairs(config, direction))
        for cores in sorted({each.cores for each in TRANSFERS}):
            of_cores = pairs(config, direction, cores)
            errors[f"{direction}, {cores} core{'' if cores == 1 else 's'}"] = Errors.of(of_cores)
    return errors
