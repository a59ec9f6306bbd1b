"""Near-bank machines: two that exist, and two estimates, with the source of every constant.

Sources
    A: PyGim, SIGMETRICS 2025 (arXiv 2402.16731), abstract.
    R: the repository of its authors, CMU-SAFARI/PyGim at 22ea1cb: tables measured on their machine, in
       utils/autotuner.py.
    P: J. Gomez-Luna et al., "Benchmarking a New Paradigm: ... a Real Processing-in-Memory Architecture"
       (PrIM), cited second-hand.
    S: the UPMEM SDK's manual.
    U: the routines of the UPMEM SDK's library, as uPIMulator ships them (mul32.c, seqread.inc).
    M: PIM-MMU, measurements of an UPMEM server.
    V: transfers by few cores of another UPMEM server, in uPIMulator's data; measured.py has them.
    D: derived here, by the arithmetic that is stated.
    assumption: not published; replace it if you have a measurement.
"""

from collections.abc import Callable
from importlib import resources
from pathlib import Path

from onehop.errors import ArgumentError, ConfigurationError
from onehop.machines.common.files import document_of, text_of
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.parts import Arithmetic, Core, Functions, Host, Links, Points, Power

# R: microseconds of one transfer, by its bytes.
DMA_BYTES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
DMA_READ_US = (0.1882, 0.2116, 0.2551, 0.2601, 0.3698, 0.6018, 0.9283, 1.6649, 3.2829)
DMA_WRITE_US = (0.1370, 0.1548, 0.1519, 0.2060, 0.4120, 0.4721, 0.8861, 1.6284, 3.2686)
# R: GB/s delivered to all cores of 32 ranks together. P, from memory: GB/s to all cores of one rank.
BROADCAST_GBPS = 43.73
RANK_BROADCAST_GBPS = 16.88
# R: GB/s from the cores to the host, by kilobytes of each core's block.
PULL_KB = (64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480)
PULL_GBPS = (4.84, 4.96, 4.49, 4.99, 5.13, 5.35, 4.12, 5.76, 5.08, 5.87, 5.68, 5.87, 6.06, 6.35)
# R: edges that one core processes per millisecond, int32, by width of the slice. Used for calibration only.
EDGES_PER_MS = {2: 3527.26, 4: 3033.81, 8: 1762.68, 16: 963.18, 32: 507.20}
# R: rows that the host merges per millisecond, int32, by width of the slice.
COPIED_ROWS_PER_MS = {2: 28413.6, 4: 27390.1, 8: 23207.0, 16: 17066.6, 32: 10168.7}
ADDED_ROWS_PER_MS = {4: 36849.0, 8: 32651.4, 16: 24902.4, 32: 15506.3}

# D: linear fits of these two tables, for the widths that they lack: ns per row, base and slope per value.
COPY_FIT_NS, ADD_FIT_NS = (27.8, 2.14), (20.3, 1.36)
_WIDEST = 512.0

# Clock of the machine on which R was measured: D, from 624 MB/s in transfers of 2 KB, which is 1.8 of the 2
# bytes per cycle that S states.
_MEASURED_MHZ = 350.0


def _cycles(microseconds: tuple[float, ...]) -> Points:
    return tuple(
        (size, round(us * _MEASURED_MHZ, 2)) for size, us in zip(DMA_BYTES, microseconds, strict=True)
    )


def _merge_ns(rows_per_ms: dict[int, float], fit: tuple[float, float]) -> Points:
    """Return the table, and the fit beyond its ends: R has no rate of adding slices of two values."""
    base, slope = fit
    outside = {width: base + slope * width for width in (2, _WIDEST) if width not in rows_per_ms}
    inside = {width: round(1e6 / rate, 2) for width, rate in rows_per_ms.items()}
    return tuple(sorted((float(width), ns) for width, ns in (inside | outside).items()))


# There are two sources for the transfers: the published law of 77 (read) or 61 (write) cycles plus half a
# cycle per byte (P), and R's table, which is used here. They agree from 256 bytes on, and differ by 15 to 20
# cycles below.
_UPMEM_CORE = Core(
    clock_mhz=_MEASURED_MHZ,  # S
    threads=24,  # S
    reissue_cycles=11,  # P
    mram_bytes=64 << 20,  # R
    wram_bytes=64 << 10,  # S
    iram_bytes=24 << 10,  # S
    stack_bytes=1024,  # assumption
    edge_instructions=35.2,  # D: intercept of R's edges per millisecond at widths 8, 16, 32
    coo_edge_instructions=6.0,  # assumption: advancing a reader, a load, a compare
    # D: slope of the same data, 20.47, minus accumulate and multiply by one, 12.03.
    element_instructions=8.44,
    row_instructions=30.0,  # assumption: about what an edge costs
    row_element_instructions=1.0,  # assumption: one store clears an element
    dma_read_cycles=_cycles(DMA_READ_US),  # R
    dma_write_cycles=_cycles(DMA_WRITE_US),  # R
    dma_most_bytes=2048,  # S
    alignment_bytes=8,  # S
)

# int32: R has 29.09889 and, commented out, 8.73763 million multiply-adds per second and core: 12.03 and 40.06
# cycles. The first is 6 for the add (P) and 6.03 for a multiply by one, whose routine has about 5
# instructions and one for each bit (U); the second is 6 + 34, the multiply of random numbers (P).
# fp32: the same pair of figures is 6.237449 and 1.375, that is 56.1 and 254.5 cycles, with 254.5 = 71 + 183,
# P's add and multiply of random numbers. The multiply by one is assumed to cost what int32's costs.
_UPMEM_ARITHMETIC = {
    "int8": Arithmetic(6.0, 1.0, 1.0, 8),  # P; an 8-bit multiply is one instruction (U)
    "int16": Arithmetic(6.0, 6.03, 21.0, 16),  # D: as int32, with at most 16 steps
    "int32": Arithmetic(6.0, 6.03, 37.0, 32),  # P, R, U
    # P: 7 and 137 with the loop. Whether the routine exits early is not known.
    "int64": Arithmetic(7.0, 130.0, 130.0, 64),
    "float32": Arithmetic(50.1, 6.0, 204.4, 24),  # R, P
    "float64": Arithmetic(105.0, 655.0, 655.0, 53),  # P; whether it exits early is not known
}

# All of these are assumptions, in instructions: none was measured.
# compare: an add in a loop of integers of the same size (P), 6 and 7, with a comparison and jump instead of
# the add; before it 5 (float64: 9) that order a float's bits like an integer's and check for NaN.
# exponential: float32 uses a table with linear interpolation, as in TransPimLib: 40 to split off the exponent
# and to look up, a full multiply, two adds. float64 uses a shorter table and a polynomial of degree 5: 40,
# and six full multiplies and adds. Results are computed with an exact exponential, without a table's error.
# divide: 0.34 and 0.16 million divisions per second and core at 350 MHz (P, from memory, unchecked).
_UPMEM_FUNCTIONS = {
    "float32": Functions(compare=11.0, exponential=40.0 + 204.4 + 2 * 50.1, divide=1029.0),
    "float64": Functions(compare=16.0, exponential=40.0 + 6 * (655.0 + 105.0), divide=2188.0),
}

_UPMEM_LINKS = Links(
    broadcast_gbps=((1, RANK_BROADCAST_GBPS), (32, BROADCAST_GBPS)),  # P, R
    push_gbps=8.9,  # M: what a server reached, on three channels
    pull_gbps=tuple(zip(map(float, PULL_KB), PULL_GBPS, strict=True)),  # R
    # D: the power of the number of cores that fits half of V best (calibration.py). P, second-hand, has 0.33,
    # 0.12, 6.68 and 4.74: a full rank of V receives at 0.6 of P's rate, and sends at a third.
    core_push_gbps=0.683,
    core_pull_gbps=0.171,
    rank_push_gbps=3.98,
    rank_pull_gbps=1.58,
    full_rank_cores=62,  # D: usable cores of a rank, 1,992 in 32
    call_us=30.0,  # a third-party note, for a copy of 4 KB; the latency of a launch is not published
    copy_ns=_merge_ns(COPIED_ROWS_PER_MS, COPY_FIT_NS),  # R up to 32 values, D beyond
    add_ns=_merge_ns(ADDED_ROWS_PER_MS, ADD_FIT_NS),  # R up to 32 values, D beyond
    host_dram_gbps=23.1,  # R
    host_line_bytes=64,
    page_bytes=4096,
    page_fault_ns=250.0,  # assumption: a first touch on Linux, clearing included
    core_to_core_gbps=0.0,  # A: cores communicate with the host only
)

_UPMEM_POWER = Power(
    core_w=0.15,  # 1.2 W per chip of 8 cores: from memory, unverified
    rank_w=2.01,  # D: (23.22 W per DIMM, from memory, unverified, minus 16 chips of 1.2 W) / 2 ranks
    host_w=70.0,  # M: a system during transfers
    host_idle_w=25.0,  # assumption: a server's processor that waits
)

_UPMEM_HOST = Host(
    product_gflops=500.0,  # assumption: about half the peak of two processors of 8 cores with AVX-512
    stream_gbps=23.1,  # R: the host's memory
)


def upmem_v1a() -> PimConfig:
    """Return the machine of the PyGim paper: 1,992 cores in 32 ranks of 16 DIMMs (A, R), at 350 MHz."""
    return PimConfig(
        "upmem_v1a",
        1992,
        32,
        _UPMEM_CORE,
        _UPMEM_LINKS,
        _UPMEM_POWER,
        _UPMEM_HOST,
        _UPMEM_ARITHMETIC,
        _UPMEM_FUNCTIONS,
    )


def upmem_v1b() -> PimConfig:
    """Return the next chip version: 400 MHz, 16 threads, 62 KiB of working memory (S); else as v1A."""
    return upmem_v1a().with_(name="upmem_v1b", clock_mhz=400.0, threads=16, wram_bytes=63_488)


def hbm_pim_like() -> PimConfig:
    """Return an estimated machine: few wide cores with multipliers in stacked memory.

    All values are assumptions in the spirit of Samsung's HBM-PIM, for studies of similar cores; the file
    ``estimates/hbm_pim_like.toml`` has the values.
    """
    return _estimate("hbm_pim_like")


def aim_like() -> PimConfig:
    """Return an estimated machine: a multiply-add unit at every bank of graphics memory.

    All values are assumptions in the spirit of SK hynix's AiM; the file ``estimates/aim_like.toml`` has the
    values.
    """
    return _estimate("aim_like")


def _estimate(name: str) -> PimConfig:
    folder = resources.files(__package__) / "estimates"
    return PimConfig.from_toml((folder / f"{name}.toml").read_text())


_PRESETS: dict[str, Callable[[], PimConfig]] = {
    "upmem_v1a": upmem_v1a,
    "upmem_v1b": upmem_v1b,
    "hbm_pim_like": hbm_pim_like,
    "aim_like": aim_like,
}


def presets() -> tuple[str, ...]:
    """Names of the presets.

    Examples:
        >>> from onehop.machines import pim
        >>> pim.presets()
        ('upmem_v1a', 'upmem_v1b', 'hbm_pim_like', 'aim_like')
    """
    return tuple(_PRESETS)


def preset(name: str) -> PimConfig:
    """Return the preset machine of this name.

    Raises:
        ArgumentError: The name is unknown.

    Examples:
        >>> from onehop.machines import pim
        >>> pim.preset("upmem_v1a").cores
        1992
    """
    if name not in _PRESETS:
        raise ArgumentError(f"machine: no preset is called {name!r}; there are {', '.join(_PRESETS)}.")
    return _PRESETS[name]()


def load(path: str | Path) -> PimConfig:
    """Return the machine of a TOML file.

    The key ``base`` in the file names a preset; the file then overrides some of the preset's values. Files
    that ``host measure`` writes (see csrc/pim) have this key. Without it, the file must be one that
    :meth:`PimConfig.save` writes.

    Args:
        path: The file.

    Raises:
        ConfigurationError: The file is not TOML, a key or the base is unknown, or a value does not fit.
        FileNotFoundError: There is no such file.
    """
    text = text_of(path)
    name = document_of(text).get("base")
    if name is None:
        return PimConfig.from_toml(text)
    if name not in presets():
        raise ConfigurationError(f"base: expected one of {', '.join(_PRESETS)}, got {name!r}.")
    return PimConfig.from_toml(text, preset(name))
