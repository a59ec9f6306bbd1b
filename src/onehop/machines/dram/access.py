"""What is read or written: runs of contiguous bytes at random places, or one run from the first byte on."""

from dataclasses import dataclass

from onehop.errors import ArgumentError
from onehop.machines.dram.device import Organisation

PATTERNS = ("random", "sequential")
OPERATIONS = ("read", "write")


@dataclass(frozen=True, slots=True)
class Access:
    """A kind of traffic.

    Attributes:
        pattern: ``random``: runs that start at uniformly random multiples of their length. ``sequential``:
            burst after burst from address 0.
        run_bytes: Contiguous bytes of a random run; what is no whole burst is moved as one. Without meaning
            for sequential traffic.
        op: ``read`` or ``write``.
        span_bytes: Random runs lie in so many bytes from address 0 on, at least one run; None means that they
            lie anywhere. In a small span rows are found open that chance alone would have closed, which the
            command level and the curve count and the closed form does not.
    """

    pattern: str = "random"
    run_bytes: int = 64
    op: str = "read"
    span_bytes: int | None = None

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, allowed in (("pattern", PATTERNS), ("op", OPERATIONS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ArgumentError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}.")
        if type(self.run_bytes) is not int or self.run_bytes < 1:
            raise ArgumentError(f"run_bytes: expected an integer of at least 1, got {self.run_bytes!r}.")
        if self.span_bytes is not None and (type(self.span_bytes) is not int or self.span_bytes < 1):
            raise ArgumentError(
                f"span_bytes: expected None or an integer of at least 1, got {self.span_bytes!r}."
            )

    def run_bursts(self, organisation: Organisation) -> int:
        """Bursts of a run."""
        return -(-self.run_bytes // organisation.burst_bytes)
