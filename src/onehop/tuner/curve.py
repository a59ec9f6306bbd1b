"""The points of a tuning run's curve over widths."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One width: medians of a call, or, with backward, of a call and its gradient together.

    Attributes:
        width: Columns.
        tuned_s: With the tuned plans; None where nothing was measured.
        default_s: With the default plans.
        torch_s: With torch's sparse CSR; None where torch has no such operation.
        predicted_s: Prediction of the cost model for the tuned plans; None on GPUs.
    """

    width: int
    tuned_s: float | None
    default_s: float | None
    torch_s: float | None
    predicted_s: float | None

    @property
    def over_default(self) -> float | None:
        """Speed-up over the default plans."""
        return self.default_s / self.tuned_s if self.default_s and self.tuned_s else None

    @property
    def over_torch(self) -> float | None:
        """Speed-up over torch's sparse CSR."""
        return self.torch_s / self.tuned_s if self.torch_s and self.tuned_s else None
