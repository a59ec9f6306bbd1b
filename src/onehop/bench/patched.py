"""The same call with and without the patch: results compared, then times in turns."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

import onehop
from onehop.bench.timing import Ratio, in_turns, median_of_turn, within

# Seconds of a turn after its first call, which has to fetch memory that the other way gave back.
TURN_S = 0.1


def beside_pyg(once: Callable[[], list[Tensor]], rounds: int, tolerance: float) -> dict[str, Any]:
    """Measures a call under the patch beside the same call of PyG's.

    Args:
        once: Makes the call, and returns what is to be compared.
        rounds: Turns of each way, each of calls of 0.1 s, after one that is not counted.
        tolerance: How far results may be apart, relative to the largest entry.

    Returns:
        As a line of a result file: medians in seconds, PyG's time over the patched one's with its quartiles,
        the largest relative difference, and whether that is too large.
    """
    patch = onehop.patch()
    expected = within(patch.paused, once)
    pairs = zip(once(), expected, strict=True)
    difference = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)
    turn = partial(median_of_turn, once, TURN_S, least=1)
    times = in_turns({False: partial(within, patch.paused, turn), True: turn}, rounds)
    patch.remove()
    return {
        "pyg_s": times[False].median_s,
        "onehop_s": times[True].median_s,
        "ratio": vars(Ratio.of(times[False], times[True])),
        "difference": difference,
        "wrong": not difference <= tolerance,
    }
