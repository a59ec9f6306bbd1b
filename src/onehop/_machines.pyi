"""Inner loops of the simulated machines (csrc/bindings/machines.cpp); onehop.machines checks what goes in."""

from numpy import ndarray

def bind_openmp(path: str) -> bool: ...

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
def pim_cut_part(
    positions: int,
    filled: int,
    rows: int,
    cores: int,
    tasklets: int,
    coo: bool,
    cores_by_edge: bool,
    threads_by_edge: bool,
    row_granule: int,
    core_rows: int,
    tasklet_table: int,
) -> None: ...
def pim_execute(
    x_type: int,
    sum_type: int,
    positions: int,
    col: int,
    weight: int,
    x: int,
    columns: int,
    x_stride: int,
    out: int,
    out_stride: int,
    core_rows: list[int],
    tasklet_tables: list[int],
    cores: list[int],
    tasklets: int,
    chunks: int,
    num_chunks: int,
    threads: int,
) -> None: ...

DRAWS_PER_TASK: int

def block_inside(
    starts: int,
    demand: int,
    first: int,
    last: int,
    seed: int,
    pairs: int,
    capacity: int,
    degrees: int,
    threads: int,
) -> int: ...
def block_alias(weights: int, count: int, threshold: int, alias: int) -> bool: ...
def block_between(
    threshold: int,
    alias: int,
    community: int,
    nodes: int,
    draws: int,
    seed: int,
    first_stream: int,
    pairs: int,
    threads: int,
) -> int: ...
def block_rows(
    pairs: int, count: int, number: int, nodes: int, rowptr: int, col: int, threads: int
) -> None: ...

class ImplicitGraph:
    bytes: int

    def __init__(
        self,
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
