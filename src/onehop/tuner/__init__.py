"""Choice of the best plan: statistics, a cost model, measurements, and the store of results."""

from onehop.tuner.curve import CurvePoint
from onehop.tuner.interruption import TuningInterrupted
from onehop.tuner.result import TuningResult
from onehop.tuner.tuning import tune

__all__ = ["CurvePoint", "TuningInterrupted", "TuningResult", "tune"]
