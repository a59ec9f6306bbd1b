"""GPUs as TOML files: those of the folder ``devices``, where every figure has its source, and others."""

from dataclasses import dataclass, replace
from pathlib import Path

from onehop.errors import ArgumentError, ConfigurationError
from onehop.machines.common import files
from onehop.machines.common.checks import check

# Bytes of a load of 4 bytes in each of 32 lanes.
_LEAST_TILE = 128


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: the figures that decide how often a kernel's gathers go to memory.

    Attributes:
        name: Its name in tables.
        sms: Multiprocessors.
        sm_warps: Warps that are resident on each at most.
        l2_bytes: Size of the second cache; 0 means none.
        l2_ways: Its ways; as many as it has sectors make it fully associative.
        sector_bytes: Bytes that it fetches at once, a divisor of 128.
        dram_gbps: Bandwidth of the memory, in 10^9 bytes a second.
        fp32_gflops: Peak of float32 arithmetic outside tensor cores, in 10^9 operations a second; 0 where it
            is not known.

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
        """Warps that are resident at most."""
        return self.sms * self.sm_warps

    def floor_us(self, sectors: int) -> float:
        """Microseconds that so many sectors take at the memory's peak."""
        return sectors * self.sector_bytes / self.dram_gbps / 1e3

    def part(self, share: float) -> "Gpu":
        """As large a part of the GPU, as one multiprocessor: of warps, cache, bandwidth and peak.

        What a part of a graph runs on: cache and resident warps keep their ratios to the graph. Communities
        do not shrink with it, so that a part whose cache has no room for some of them gains too little.

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
    """The GPU of this name, or of a TOML file.

    Raises:
        ConfigurationError: No preset of that name and no such file, or the file is wrong.

    Examples:
        >>> from onehop.machines import gpu
        >>> gpu.load("h200").name
        'H200'
    """
    text, _ = files.opened(source, __package__, "devices", "gpu")
    return files.made(Gpu, files.document_of(text, str(source)), str(source))
