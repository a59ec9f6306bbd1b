"""The DRAM in the layer model: nanoseconds and activations per burst, by kind of traffic."""

from dataclasses import dataclass
from functools import lru_cache

from onehop.machines.dram import Access, Dram, Memory
from onehop.machines.ndp.config import NdpConfig


@dataclass(frozen=True, slots=True)
class BurstTime:
    """Cost of one burst in traffic of one kind.

    Attributes:
        ns: Time in nanoseconds.
        activations: Row activations.
    """

    ns: float
    activations: float


@dataclass(frozen=True, slots=True)
class MemoryTimes:
    """A rank behind its own module, and the same ranks behind the host's bus.

    Attributes:
        rank: A rank as its module sees it: the DRAM-path.
        bus: All ranks of a channel, as the baseline's host sees them.
        level: The level that gives the times.
        channel_gbps: Bandwidth of a channel's Host-path; 0 means the bandwidth of streams over the bus.
    """

    rank: Memory
    bus: Memory
    level: str
    channel_gbps: float

    @classmethod
    def of(cls, config: NdpConfig) -> "MemoryTimes":
        """Return the memory of a machine."""
        chosen, device = config.dram, config.dram.device()

        def behind(ranks: int) -> Memory:
            return Memory(
                device, ranks, chosen.layout, refresh_mode=chosen.refresh_mode, close_after=chosen.close_after
            )

        ranks = config.topology.ranks_per_channel
        return cls(behind(1), behind(ranks), chosen.level, config.host.channel_gbps)

    @property
    def device(self) -> Dram:
        """The DRAM device."""
        return self.rank.dram

    @property
    def burst_bytes(self) -> int:
        """Bytes of a burst."""
        return self.device.organisation.burst_bytes

    @property
    def fill_ns(self) -> float:
        """Time from a phase's first command to its first data: RCD + CL + BL."""
        timing = self.device.timing
        return (timing.rcd + timing.cl + timing.bl) * timing.clock_ps / 1000.0

    def random(
        self, bursts: int, op: str = "read", *, on_bus: bool = False, runs: int | None = None
    ) -> BurstTime:
        """Return the cost per burst of runs of ``bursts`` bursts at random addresses.

        Args:
            bursts: Number of bursts in a run.
            op: ``read`` or ``write``.
            on_bus: Whether the traffic uses the channel; if not, it uses the rank's own module.
            runs: Number of consecutive places for runs; None means that the places fill the memory.
        """
        run_bytes = max(bursts, 1) * self.burst_bytes
        span = None if runs is None else max(runs, 1) * run_bytes
        return _cost(self._of(on_bus), Access("random", run_bytes, op, span), self.level)

    def stream(self, op: str = "read", *, on_bus: bool = False) -> BurstTime:
        """Return the cost of sequential bursts."""
        return _cost(self._of(on_bus), Access("sequential", self.burst_bytes, op), self.level)

    def byte_ns(self, op: str = "read") -> float:
        """Return the time per byte that the host reads from the modules of a channel, or writes to them."""
        if self.channel_gbps:
            return 1.0 / self.channel_gbps
        return self.stream(op, on_bus=True).ns / self.burst_bytes

    def _of(self, on_bus: bool) -> Memory:
        return self.bus if on_bus else self.rank


@lru_cache(maxsize=4096)
def _cost(memory: Memory, access: Access, level: str) -> BurstTime:
    found = memory.cost(access, level)
    return BurstTime(found.cycles * memory.dram.timing.clock_ps / 1000.0, found.activations)
