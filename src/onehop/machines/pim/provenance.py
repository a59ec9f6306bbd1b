"""The kind of evidence behind every constant of the UPMEM presets.

There are three kinds: measured on hardware by others; derived here by arithmetic from measurements; assumed.
Letters are the sources in presets.py. Second-hand figures that could not be checked against a text are
marked.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import NamedTuple

from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.presets import preset

_BY_DTYPE = ("arithmetic", "functions")
MEASURED, DERIVED, ASSUMED = KINDS = ("measured", "derived", "assumed")


class Source(NamedTuple):
    """The evidence behind a constant.

    Attributes:
        kind: One of :data:`KINDS`.
        text: Source, or the reason for the value.
    """

    kind: str
    text: str


_FITTED = "V: a power of the number of cores, fitted to two of four benchmarks on another server"

CONSTANTS: Mapping[str, Source] = {
    "cores": Source(MEASURED, "A: the paper's machine"),
    "ranks": Source(MEASURED, "R: 16 modules of two ranks"),
    "core.clock_mhz": Source(DERIVED, "S and R: 350 MHz fits R's transfers of 2 KB; the paper gives none"),
    "core.threads": Source(MEASURED, "S"),
    "core.reissue_cycles": Source(MEASURED, "P"),
    "core.mram_bytes": Source(MEASURED, "R"),
    "core.wram_bytes": Source(MEASURED, "S"),
    "core.iram_bytes": Source(MEASURED, "S"),
    "core.stack_bytes": Source(ASSUMED, "a common setting"),
    "core.edge_instructions": Source(DERIVED, "R: intercept of edges a millisecond at widths 8, 16, 32"),
    "core.coo_edge_instructions": Source(ASSUMED, "advancing a third reader, a load, a compare"),
    "core.element_instructions": Source(
        ASSUMED, "R gives its sum with the multiply by one, 14.47; the split between them is not measured"
    ),
    "core.row_instructions": Source(ASSUMED, "bounds and the start of a write"),
    "core.row_element_instructions": Source(ASSUMED, "one store"),
    "core.dma_read_cycles": Source(MEASURED, "R"),
    "core.dma_write_cycles": Source(MEASURED, "R"),
    "core.dma_most_bytes": Source(MEASURED, "S"),
    "core.alignment_bytes": Source(MEASURED, "S"),
    "links.broadcast_gbps": Source(
        MEASURED, "R at 32 ranks; P at one, second hand and unchecked; a power between"
    ),
    "links.push_gbps": Source(MEASURED, "M: on another server, of three channels"),
    "links.pull_gbps": Source(MEASURED, "R"),
    "links.core_push_gbps": Source(DERIVED, _FITTED),
    "links.core_pull_gbps": Source(DERIVED, _FITTED),
    "links.rank_push_gbps": Source(DERIVED, _FITTED),
    "links.rank_pull_gbps": Source(DERIVED, _FITTED),
    "links.full_rank_cores": Source(DERIVED, "A, R: 1,992 cores in 32 ranks"),
    "links.call_us": Source(ASSUMED, "a note on a copy of 4 KB; the latency of a launch is not published"),
    "links.copy_ns": Source(MEASURED, "R up to 32 values; a line beyond"),
    "links.add_ns": Source(MEASURED, "R from 4 to 32 values; a line outside"),
    "links.host_dram_gbps": Source(MEASURED, "R"),
    "links.host_line_bytes": Source(MEASURED, "x86-64"),
    "links.page_bytes": Source(MEASURED, "x86-64 Linux"),
    "links.page_fault_ns": Source(
        ASSUMED, "a first touch on Linux; if cold pages are why R's copying is slow, R implies 1,600 ns"
    ),
    "links.core_to_core_gbps": Source(MEASURED, "A: cores talk to the host alone"),
    "power.core_w": Source(ASSUMED, "1.2 W a chip of 8 cores, second hand and unchecked"),
    "power.rank_w": Source(ASSUMED, "23.22 W a module, second hand and unchecked, less its cores"),
    "power.host_w": Source(MEASURED, "M: a system during transfers"),
    "power.host_idle_w": Source(ASSUMED, "a server's processor that waits"),
    "host.product_gflops": Source(
        ASSUMED, "half the peak of two processors of 8 cores; the paper's is not known"
    ),
    "host.stream_gbps": Source(MEASURED, "R: the host's memory"),
    "arithmetic.int8": Source(
        MEASURED, "P, second hand and unchecked; an 8-bit multiply is an instruction (U)"
    ),
    "arithmetic.int16": Source(ASSUMED, "as int32, with at most 16 steps of a multiply"),
    "arithmetic.int32": Source(
        DERIVED, "P's add, R's multiply by one and P's random multiply, both operations second hand"
    ),
    "arithmetic.int64": Source(MEASURED, "P, second hand and unchecked; early exits are not known"),
    "arithmetic.float32": Source(
        DERIVED, "R's two pairs of rates; a multiply by one is assumed to cost int32's"
    ),
    "arithmetic.float64": Source(MEASURED, "P, second hand and unchecked; early exits are not known"),
    "functions.float32": Source(
        ASSUMED, "an integer's loop and 5 for order and NaN; exponential by table; P's division, from memory"
    ),
    "functions.float64": Source(
        ASSUMED, "likewise, 9; exponential by table and polynomial; P's division, from memory"
    ),
}

# Minimum and maximum of the assumed constants that decide comparisons, if evidence bounds them.
# element_instructions shares 14.47 with a multiply by one. It is at least all instructions of a loop without
# multiply as compiled for rv32i (7 instructions, of which 6 are counted as accumulate), and at most R's
# remainder.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "element_instructions": (1.0, 8.44),
    "coo_edge_instructions": (0.0, 12.0),
    "page_fault_ns": (250.0, 1600.0),
    "product_gflops": (250.0, 1000.0),
    "host_idle_w": (0.0, 50.0),
    "core_w": (0.075, 0.225),
    "rank_w": (1.0, 3.0),
}


def provenance(config: PimConfig) -> dict[str, Source]:
    """Return the evidence behind each constant of a machine.

    Args:
        config: The machine. The kind is "assumed" for values that differ from the preset of the machine's
            name, and for all values of machines that are not a preset or are an estimate.

    Examples:
        >>> from onehop.machines import pim
        >>> from onehop.machines.pim.provenance import provenance
        >>> provenance(pim.preset("upmem_v1a"))["core.clock_mhz"].kind
        'derived'
    """
    origin = None if config.estimate else _preset(config.name)
    return {
        name: CONSTANTS[name]
        if origin is not None and name in CONSTANTS and _value(config, name) == _value(origin, name)
        else Source(ASSUMED, "given with the machine")
        for name in names(config)
    }


def names(config: PimConfig) -> list[str]:
    """Return the names of the constants; names of a part's constants begin with the part."""
    parts = [
        f"{part}.{each.name}"
        for part in ("core", "links", "power", "host")
        for each in fields(getattr(config, part))
    ]
    by_dtype = [f"{part}.{dtype}" for part in _BY_DTYPE for dtype in getattr(config, part)]
    return ["cores", "ranks", *parts, *by_dtype]


def _preset(name: str) -> PimConfig | None:
    # v1B differs from v1A only in values that S states.
    return preset(name) if name in ("upmem_v1a", "upmem_v1b") else None


def _value(config: PimConfig, name: str) -> object:
    part, _, field = name.partition(".")
    if part in _BY_DTYPE:
        value: object = getattr(config, part).get(field)
        return value
    return getattr(getattr(config, part), field) if field else getattr(config, part)
