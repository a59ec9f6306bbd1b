"""Choice of the best plan: statistics, a cost model, measurements, and the store of results.

Modules that measure are imported on first use, because every linear step needs only the choice of a product's
library.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onehop.tuner.curve import CurvePoint
    from onehop.tuner.result import TuningInterrupted, TuningResult
    from onehop.tuner.tuning import tune

__all__ = ["CurvePoint", "TuningInterrupted", "TuningResult", "tune"]

_HOMES = {
    "CurvePoint": "curve",
    "TuningInterrupted": "result",
    "TuningResult": "result",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    """Return a public name, which is imported on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'onehop.tuner' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"onehop.tuner.{_HOMES[name]}"), name)
    return value
