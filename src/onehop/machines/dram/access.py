"""Access patterns: runs of contiguous bytes at random addresses, or one sequential run from address 0."""

from dataclasses import dataclass

from onehop.errors import ArgumentError
from onehop.machines.common.checks import check_integer
from onehop.machines.dram.device import Organisation

PATTERNS = ("random", "sequential")
OPERATIONS = ("read", "write")


@dataclass(frozen=True, slots=True)
class Access:
    """A kind of traffic.

    Attributes:
        pattern: ``random``: runs that start at uniformly random multiples of their length. ``sequential``:
            burst after burst from address 0.
        run_bytes: Contiguous bytes of a random run; partial bursts are moved as whole ones. Ignored for
            sequential traffic.
        op: ``read`` or ``write``.
        span_bytes: Size of the address range, starting at 0, in which random runs lie; at least one run. None
            means anywhere. In a small range, rows are found open that chance alone would have closed.
        write_share: Share of the runs that are written, drawn at random, of sequential traffic of the bursts;
            the others are read. None: all are as ``op`` says. Mixed traffic is of the command level alone.
    """

    pattern: str = "random"
    run_bytes: int = 64
    op: str = "read"
    span_bytes: int | None = None
    write_share: float | None = None

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, allowed in (("pattern", PATTERNS), ("op", OPERATIONS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ArgumentError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}.")
        check_integer("run_bytes", self.run_bytes)
        if self.span_bytes is not None and (type(self.span_bytes) is not int or self.span_bytes < 1):
            raise ArgumentError(
                f"span_bytes: expected None or an integer of at least 1, got {self.span_bytes!r}."
            )

        share = self.write_share
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if share is not None and not (is_number and 0 <= share <= 1):
            raise ArgumentError(f"write_share: expected None or a number from 0 to 1, got {share!r}.")

    def run_bursts(self, organisation: Organisation) -> int:
        """Bursts of a run."""
        return -(-self.run_bytes // organisation.burst_bytes)
