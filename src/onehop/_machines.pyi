"""Inner loops of the simulated machines (csrc/bindings/machines.cpp); onehop.machines checks what goes in."""

from numpy import ndarray

def bind_openmp(path: str) -> bool: ...

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
