"""What is said of a script that ran both ways."""

from typing import Any

from benchmarks.examples.running import OURS, PYG
from benchmarks.examples.turns import differences, far

# As fast as PyG, within what repeated measurements differ by.
EVEN = 0.97
# A difference says nothing where a rounding alone makes one in PyG that is at least a tenth of it.
ALIKE = 10
BROKEN, DIFFERENT = "broken", "different losses"


def verdict(result: dict[str, Any]) -> str:
    """One of "faster", "same", "slower", "refused", "not timed", and what is wrong where something is.

    Refused is a script that is as fast as before, and of which no layer was seen on a fast path; those inside
    compiled programs are not seen.
    """
    failed = result["failed"]
    if failed:
        return BROKEN if PYG not in failed else "does not run here" if OURS in failed else "only with onehop"
    if result["deviation"] is None or result["gradients"] is None:
        return DIFFERENT
    own = far(result.get("drift") or {})
    if any(value > ALIKE * own.get(name, 0.0) for name, value in far(differences(result)).items()):
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
        drift = f"; PyG's own after a rounding by {result['drift']}" if "drift" in result else ""
        return f"losses differ by {result['deviation']}, gradients by {result['gradients']}{drift}"
    return ""
