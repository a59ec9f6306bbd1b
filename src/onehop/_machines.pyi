"""Inner loops of the simulated machines (csrc/bindings/machines.cpp); onehop.machines checks what goes in."""

from collections.abc import Sequence
from typing import Self

from numpy import ndarray

def bind_openmp(path: str) -> bool: ...

# Structures of native calls: addresses of arrays, and numbers; all fields begin at 0, "left out".
class _Call:
    def copy(self) -> Self: ...

class DramCommandLog:
    def __len__(self) -> int: ...
    def copy_to(self, address: int) -> None: ...

def dram_simulate(
    *,
    timing: int,
    slices: int,
    slice_count: int,
    widths: int,
    xor_column: bool,
    controller: int,
    bursts: int,
    writes: int,
    requests: int,
    counts: int,
    log: DramCommandLog | None,
) -> None: ...

PIM_MOST_COLUMNS: int

def pim_count_parts(
    rowptr: int,
    col: int,
    rows: int,
    part_of: int,
    parts: int,
    threads: int,
    positions: int,
    filled: int,
) -> None: ...
def pim_fill_parts(
    *,
    rowptr: int,
    col: int,
    rows: int,
    part_of: int,
    parts: int,
    first_column: int,
    threads: int,
    positions: int,
    part_col: int,
    origin: int,
) -> None: ...
def pim_count_marked(
    col: int, marks: int, begins: int, ends: int, count: int, threads: int, out: int
) -> None: ...

class PimCut(_Call):
    cores: int
    tasklets: int
    coo: bool
    cores_by_edge: bool
    threads_by_edge: bool
    row_granule: int

def pim_cut_part(
    cut: PimCut, positions: int, filled: int, rows: int, core_rows: int, tasklet_table: int
) -> None: ...

class PimCores(_Call):
    core_rows: int
    tasklets: int
    cores: int
    threads: int

class PimPart(_Call):
    positions: int
    col: int
    weight: int
    x: int
    columns: int
    x_stride: int
    out: int
    out_stride: int

def pim_execute(
    x_type: int,
    sum_type: int,
    part: PimPart,
    cuts: Sequence[PimCores],
    chunks: int,
    num_chunks: int,
    threads: int,
) -> None: ...

class NdpWork:
    def __init__(
        self, rowptr: int, col: int, order: int, rows: int, cols: int, owner: int, ranks: int, /
    ) -> None: ...

class NdpCounts(_Call):
    tile: int
    block: int
    entry_bytes: int
    burst_bytes: int
    pod: int
    levels: int
    edges: int
    reads: int
    row_bursts: int
    touched: int
    touched_stride: int

def ndp_count(work: NdpWork, counts: NdpCounts, threads: int, /) -> None: ...
def ndp_retile(work: NdpWork, merge: int, batch: int, rows: int, edges: int, order: int, /) -> None: ...
def ndp_cache_misses(work: NdpWork, entries: int, ways: int, /) -> int: ...

class NdpAggregate(_Call):
    pod: int
    slice: int
    row_list: int
    listed: int
    x: int
    x_stride: int
    weight: int
    out: int
    out_stride: int

def ndp_aggregate(work: NdpWork, args: NdpAggregate, threads: int, /) -> None: ...

class NdpWindows(_Call):
    windows: int
    ranks: int
    channels: int
    pod: int
    transfer: int
    order: int
    lag: int
    record: int
    pieces: int
    adjacency_ns: int
    reads: int
    edges: int
    read_ns: int
    unit_ns: int
    fill_ns: float
    bundle_out_ns: int
    bundle_in_ns: int
    outputs_ns: int
    reduce_ns: int
    finals_ns: int
    write_ns: int
    poll_ns: float
    again_ns: float
    scan_ns: int
    lists_ns: int
    merge_ns: int
    tiles_ns: int

class NdpWindowTimes(_Call):
    rank_busy: int
    channel_busy: int
    window: int
    event_what: int
    event_time: int
    most_events: int
    events: int
    total_ns: float

def ndp_windows(layer: NdpWindows, times: NdpWindowTimes, /) -> None: ...

class GpuKernel(_Call):
    resident: int
    block_warps: int
    sectors: int
    tile: int
    lanes: int
    passes: int

def gpu_missing_sectors(
    rowptr: int, col: int, rows: int, kernel: GpuKernel, sets: int, ways: int, /
) -> int: ...

DRAWS_PER_TASK: int

class BlockInsideCall(_Call):
    starts: int
    demand: int
    first: int
    last: int
    seed: int
    pairs: int
    capacity: int
    degrees: int
    threads: int

def block_inside(call: BlockInsideCall, /) -> int: ...
def block_alias(weights: int, count: int, threshold: int, alias: int) -> bool: ...

class BlockBetweenCall(_Call):
    threshold: int
    alias: int
    community: int
    nodes: int
    draws: int
    seed: int
    first_stream: int
    pairs: int
    threads: int

def block_between(call: BlockBetweenCall, /) -> int: ...
def block_rows(
    pairs: int, count: int, number: int, nodes: int, rowptr: int, col: int, threads: int
) -> None: ...

class ImplicitGraph:
    bytes: int

    def __init__(
        self,
        *,
        nodes: int,
        seed: int,
        offset: float,
        shape: float,
        beyond: float,
        inside: float,
        most_of_community: float,
        starts: int,
        communities: int,
        threads: int,
    ) -> None: ...
    def rows(self, wanted: int, count: int, threads: int) -> tuple[ndarray, ndarray]: ...
