"""GPUs as TOML files: the included ones in ``devices``, with a source for every figure, and others."""

from dataclasses import dataclass, replace
from pathlib import Path

from onehop.errors import ArgumentError, ConfigurationError
from onehop.machines.common import files
from onehop.machines.common.checks import check

# Bytes of one load instruction of a warp: 4 bytes in each of 32 lanes.
_LEAST_TILE = 128


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: the figures that determine how often a kernel's gathers go to memory.

    Attributes:
        name: Its name in tables.
        sms: Multiprocessors.
        sm_warps: Maximum number of resident warps per multiprocessor.
        l2_bytes: Size of the L2 cache; 0 means none.
        l2_ways: Associativity of the L2 cache; as many ways as sectors make it fully associative.
        sector_bytes: Bytes that the L2 cache fetches at once, a divisor of 128.
        dram_gbps: Bandwidth of the memory, in 10^9 bytes per second.
        fp32_gflops: Peak of float32 arithmetic outside tensor cores, in 10^9 operations per second; 0 if
            unknown.

    Raises:
        ConfigurationError: A value is out of range.

    Examples:
        >>> from onehop.machines import gpu
        >>> whole = gpu.load("a100_80gb")
        >>> whole.l2_bytes, whole.part(0.01).l2_bytes  # a hundredth, for a graph of a hundredth of the size
        (41943040, 419430)
    """

    name: str
    sms: int
    sm_warps: int
    l2_bytes: int
    l2_ways: int
    sector_bytes: int
    dram_gbps: float
    fp32_gflops: float = 0.0

    def __post_init__(self) -> None:
        check(self, least={"l2_bytes": 0, "fp32_gflops": 0.0})
        if _LEAST_TILE % self.sector_bytes:
            raise ConfigurationError(
                f"sector_bytes: expected a divisor of {_LEAST_TILE}, which a warp loads at least, got "
                f"{self.sector_bytes}."
            )

    @property
    def warps(self) -> int:
        """Maximum number of resident warps on the whole GPU."""
        return self.sms * self.sm_warps

    def floor_us(self, sectors: int) -> float:
        """Return the microseconds that this many sectors take at the memory's peak bandwidth."""
        return sectors * self.sector_bytes / self.dram_gbps / 1e3

    def part(self, share: float) -> "Gpu":
        """Return a share of the GPU as one multiprocessor: a share of its warps, cache, bandwidth and peak.

        Use it for a part of a graph: cache and resident warps then keep their ratios to the graph.
        Communities do not shrink with the graph, so the simulated gain is too small if some of them do not
        fit into the reduced cache.

        Args:
            share: Above 0, at most 1.

        Raises:
            ArgumentError: ``share`` is out of range.
        """
        if not 0 < share <= 1:
            raise ArgumentError(f"share: expected a number above 0, at most 1, got {share!r}.")
        if share == 1:
            return self
        return replace(
            self,
            name=f"{self.name} x {share:g}",
            sms=1,
            sm_warps=max(round(self.warps * share), 1),
            l2_bytes=round(self.l2_bytes * share),
            dram_gbps=self.dram_gbps * share,
            fp32_gflops=self.fp32_gflops * share,
        )


def presets() -> list[str]:
    """Names of the GPUs included in onehop.

    Examples:
        >>> from onehop.machines import gpu
        >>> gpu.presets()
        ['a100_80gb', 'gtx_1080_ti', 'h100_80gb', 'h200', 'rtx_2080_ti', 'rtx_3090']
    """
    return files.included(__package__, "devices")


def load(source: str | Path) -> Gpu:
    """Return the GPU of this name, or of a TOML file.

    Raises:
        ConfigurationError: There is no preset of this name and no such file, or the file is wrong.

    Examples:
        >>> from onehop.machines import gpu
        >>> gpu.load("h200").name
        'H200'
    """
    text, _ = files.opened(source, __package__, "devices", "gpu")
    return files.made(Gpu, files.document_of(text, str(source)), str(source))
