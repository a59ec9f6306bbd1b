"""The report of a run of the memory, and the energy of its commands."""

import json
from dataclasses import asdict, dataclass, fields

from onehop.errors import ArgumentError
from onehop.machines.dram.device import Dram


@dataclass(frozen=True, slots=True)
class CommandCounts:
    """Counts of a run, in commands and clocks; :class:`DramReport` describes the counts that it repeats.

    Attributes:
        cycles: Clocks, of the device's ``clock_ps``, until the last data were transferred.
        reads: Bursts read.
        writes: Bursts written.
        read_latency_cycles: Clocks from arrival to the end of the data, summed over the reads; 0 if unknown.
        open_clocks: Clocks in which a row is open, summed over the banks of all ranks.
    """

    cycles: int
    reads: int
    writes: int
    row_hits: int
    row_misses: int
    row_conflicts: int
    activations: int
    refreshes: int
    forwarded: int = 0
    coalesced: int = 0
    read_latency_cycles: int = 0
    open_clocks: int = 0


@dataclass(frozen=True, slots=True)
class DramReport:
    """Time, bandwidth, rows and energy of a run.

    Attributes:
        level: ``command`` or ``curve``: the level that produced it.
        dram: Name of the device.
        ranks: Ranks behind the bus.
        cycles: Clocks.
        served: Bursts that were read or written in these clocks.
        time_ns: The clocks in nanoseconds.
        gbps: Bandwidth in 1e9 bytes per second.
        percent_of_peak: Bandwidth as a percentage of the data bus's peak, which it reaches if it is never
            idle.
        row_hits: Requests that found their row open.
        row_misses: Requests that found their bank closed.
        row_conflicts: Requests that found another row open.
        activations: ACT commands.
        refreshes: REF commands, over all ranks.
        forwarded: Reads that were answered from a waiting write; ``served`` does not count them.
        coalesced: Writes that were merged into a waiting write; ``served`` does not count them.
        mean_read_latency_ns: Mean time from a read's arrival in the queue to the end of its data; None except
            at the command level.
        energy_nj: Total energy of the ranks.
        energy: Energy in nJ by command, and of ``standby``.
        energy_source: The source of the energies.
    """

    level: str
    dram: str
    ranks: int
    cycles: int
    served: int
    time_ns: float
    gbps: float
    percent_of_peak: float
    row_hits: int
    row_misses: int
    row_conflicts: int
    activations: int
    refreshes: int
    forwarded: int
    coalesced: int
    mean_read_latency_ns: float | None
    energy_nj: float
    energy: dict[str, float]
    energy_source: str

    def to_json(self) -> str:
        """Return the report as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "DramReport":
        """Return the report that :meth:`to_json` wrote.

        Raises:
            ArgumentError: The text is not such a report.
        """
        try:
            return cls(**json.loads(text))
        except (json.JSONDecodeError, TypeError) as error:
            raise ArgumentError(f"report: expected what to_json wrote ({error}).") from error


def report(dram: Dram, level: str, ranks: int, counts: CommandCounts, refreshed_share: float) -> DramReport:
    """Return a report from a level's counts; one refresh takes ``refreshed_share`` of a rank's banks."""
    served = counts.reads + counts.writes
    time_ns = counts.cycles * dram.timing.clock_ps / 1000.0
    gbps = served * dram.organisation.burst_bytes / time_ns if time_ns else 0.0
    energy = energy_by_command(dram, ranks, counts, refreshed_share)
    latency = counts.read_latency_cycles / max(1, counts.reads) * dram.timing.clock_ps / 1000.0
    shared = {entry.name for entry in fields(CommandCounts)} & {entry.name for entry in fields(DramReport)}
    return DramReport(
        level=level,
        dram=dram.name,
        ranks=ranks,
        served=served,
        time_ns=time_ns,
        gbps=gbps,
        percent_of_peak=100.0 * gbps / dram.peak_gbps,
        mean_read_latency_ns=latency or None,
        energy_nj=sum(energy.values()),
        energy=energy,
        energy_source=dram.energy.source,
        **{name: getattr(counts, name) for name in shared},
    )


def energy_by_command(
    dram: Dram, ranks: int, counts: CommandCounts, refreshed_share: float = 1.0
) -> dict[str, float]:
    """Return the energy of a run in nJ by command; ``standby`` is what all ranks draw without commands.

    Standby grows with the number of banks that have a row open or are being refreshed, as in DRAMPower.
    """
    energy, timing, banks = dram.energy, dram.timing, dram.organisation.banks
    refresh_clocks = timing.rfc if refreshed_share == 1.0 else timing.rfc_sb
    refreshed = counts.refreshes * refreshed_share * refresh_clocks
    closed = ranks * counts.cycles - counts.open_clocks / banks - refreshed
    standby = ranks * counts.cycles * energy.standby_mw - closed * (energy.standby_mw - energy.idle_mw)
    return {
        "activate": counts.activations * energy.activate_nj,
        "read": counts.reads * energy.read_nj,
        "write": counts.writes * energy.write_nj,
        "refresh": counts.refreshes * energy.refresh_nj * refreshed_share,
        "standby": standby * timing.clock_ps * 1e-6,
    }
