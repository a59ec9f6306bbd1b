"""What is said of a script that ran both ways."""

from typing import Any

from benchmarks.examples.running import OURS, PYG
from benchmarks.examples.turns import LATER

# As fast as PyG, within what repeated measurements differ by.
EVEN = 0.97
# The first loss and the gradients of the first step come of the same parameters, in float32, with sums in
# another order. Later losses come of parameters that drift apart: an optimiser that divides gradients by
# their size, as Adam does, makes whole steps of those that are nothing but rounding. Where they drift far,
# PyG runs once more with parameters changed by a rounding: if its own losses drift as far, they say nothing.
FIRST, GRADIENTS = 1e-5, 1e-3
BROKEN, DIFFERENT = "broken", "different losses"


def verdict(result: dict[str, Any]) -> str:
    """One of "faster", "same", "slower", "refused", "not timed", and what is wrong where something is.

    Refused is a script that is as fast as before, and of which no layer was seen on a fast path; those inside
    compiled programs are not seen.
    """
    failed = result["failed"]
    if failed:
        return BROKEN if PYG not in failed else "does not run here" if OURS in failed else "only with onehop"
    deviation = result["deviation"]
    gradients = result["gradients"]
    if deviation is None or gradients is None or gradients > GRADIENTS:
        return DIFFERENT
    if deviation["first"] > FIRST or deviation["largest"] > LATER >= (result.get("drift") or 0.0):
        return DIFFERENT
    if "speedup" not in result:
        return "not timed"
    ratio = result["speedup"]["median"]
    if ratio < EVEN:
        return "slower"
    if ratio > 1 / EVEN:
        return "faster"
    return "same" if any(layer["reason"] is None for layer in result["layers"]) else "refused"


def reason(result: dict[str, Any]) -> str:
    """Why a script did not run, or in what its losses differ; else empty."""
    if result["failed"]:
        return str(result["failed"].get(OURS) or result["failed"][PYG])
    if result["verdict"] == DIFFERENT:
        counts = result["losses"]
        if counts[PYG] != counts[OURS]:
            return f"{counts[PYG]} losses, with onehop {counts[OURS]}"
        drift = f", PyG's own after a rounding by {result['drift']}" if "drift" in result else ""
        return f"losses differ by {result['deviation']}, gradients by {result['gradients']}{drift}"
    return ""
