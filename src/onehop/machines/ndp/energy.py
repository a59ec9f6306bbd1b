"""Energy by component, computed from counts: DRAM commands, both paths, arithmetic, buffers."""

from dataclasses import dataclass

from onehop.machines.ndp.config import EnergyFigures
from onehop.machines.ndp.mapping import ELEMENT_BYTES
from onehop.machines.ndp.memory_times import MemoryTimes


@dataclass(frozen=True, slots=True)
class Commands:
    """Counts of DRAM commands over all ranks.

    Attributes:
        reads: Bursts read.
        writes: Bursts written.
        activations: Row activations.
    """

    reads: float
    writes: float
    activations: float


def dram_nj(commands: Commands, memory: MemoryTimes, ranks: int, time_ns: float) -> dict[str, float]:
    """Return the ranks' energy in nJ, by command, and their standby energy."""
    energy = memory.device.energy
    return {
        "dram_activate": commands.activations * energy.activate_nj,
        "dram_read": commands.reads * energy.read_nj,
        "dram_write": commands.writes * energy.write_nj,
        "dram_refresh": memory.rank.refresh_nj(time_ns) * ranks,
        "dram_standby": time_ns * ranks * energy.standby_mw * 1e-3,
    }


def host_path_nj(figures: EnergyFigures, channel_bytes: float) -> float:
    """Return the energy in nJ of bytes over channels."""
    return channel_bytes * 8 * figures.channel_pj_per_bit * 1e-3


def path_nj(figures: EnergyFigures, channel_bytes: float, local_bytes: float) -> dict[str, float]:
    """Return the energy in nJ of bytes over channels, and between ranks and their modules."""
    return {
        "host_path": host_path_nj(figures, channel_bytes),
        "dram_path": local_bytes * 8 * figures.local_pj_per_bit * 1e-3,
    }


def unit_nj(figures: EnergyFigures, products: float, buffered_bytes: float) -> dict[str, float]:
    """Return the energy in nJ of multiply-accumulations; each also reads and writes its output's buffer."""
    traffic = buffered_bytes + 2 * products * ELEMENT_BYTES
    return {
        "units": products * (figures.add_pj + figures.multiply_pj) * 1e-3,
        "buffers": traffic * figures.buffer_pj_per_byte * 1e-3,
    }
