"""Inner loops of the simulated machines (csrc/bindings/machines.cpp); onehop.machines checks what goes in."""

def bind_openmp(path: str) -> bool: ...

class DramCommandLog:
    def __len__(self) -> int: ...
    def copy_to(self, address: int) -> None: ...

def dram_simulate(
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
