"""Times of calls on a device: on a GPU by its own clock, in the interpreter by the process's."""

import math
import time
from collections.abc import Callable

import torch

from onehop.plans import TritonPlan

# Calls shorter than this are repeated within one measurement.
_SHORT_S = 2e-3
_MOST_REPEATS = 200


def seconds_of(call: Callable[[TritonPlan], object], plan: TritonPlan, device: torch.device) -> float:
    """Seconds of one call of a plan that has run before; the mean of several if calls are short."""
    once = device_seconds(lambda: call(plan), device)
    if once >= _SHORT_S:
        return once
    repeats = min(math.ceil(_SHORT_S / max(once, 1e-7)), _MOST_REPEATS)

    def repeated() -> None:
        for _ in range(repeats):
            call(plan)

    return device_seconds(repeated, device) / repeats


def device_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Seconds from the beginning of a call's work on the device to its end."""
    if device.type != "cuda":
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin
    with torch.cuda.device(device):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        call()
        stop.record()
        stop.synchronize()
    return float(start.elapsed_time(stop)) / 1e3
