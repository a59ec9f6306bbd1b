"""The condition of a machine in ten lines: what an error report needs, and what slows onehop on it.

If a command can improve a line's state, the line names the command.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from onehop.bench import limits
from onehop.bench.timing import interleave
from onehop.graph import Graph
from onehop.ops import aggregate
from onehop.sizes import readable
from onehop.tables import Column, Table

# Rows of 64 float32 numbers, more of them than fit into most caches; edges per destination; rounds.
_WIDTH, _BYTES, _EDGES_A_ROW, _ROUNDS = 64, 256 << 20, 16, 3
# Libraries that replace the C library's allocator when they are preloaded.
_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")

Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    Attributes:
        name: Subject of the line.
        state: Its current state.
        remedy: The command that improves the state; empty if there is nothing to improve.
    """

    name: str
    state: str
    remedy: str = ""


COLUMNS = (
    Column("", "name", left=True, wraps=False),
    Column("here", "state", left=True),
    Column("to improve it", "remedy", left=True),
)


def bandwidth(matrix_bytes: int = _BYTES) -> dict[str, float]:
    """Measure the speed of reading memory, and how near a sum comes to it, in about two seconds.

    Args:
        matrix_bytes: Size of the matrix that is read.

    Returns:
        Rates in 10^9 bytes per second: ``in_order``; ``random_rows``, which limits a sum over random edges;
        and ``sum``, the rate of onehop for this sum.
    """
    read = limits.streaming(matrix_bytes, _ROUNDS)["read"]
    rows = max(matrix_bytes // (4 * _WIDTH), _EDGES_A_ROW)
    edges = rows - rows % _EDGES_A_ROW
    x = torch.ones(rows, _WIDTH, device="cpu")
    col = torch.randint(rows, (edges,), generator=torch.Generator().manual_seed(0), device="cpu")
    roof = limits.gather_roof(x, col.int(), _ROUNDS)
    graph = Graph.from_csr(torch.arange(0, edges + 1, _EDGES_A_ROW, device="cpu"), col, num_src=rows)
    times = interleave({"sum": lambda: aggregate(graph, x)}, _ROUNDS)
    moved = limits.aggregated_bytes(edges, graph.num_dst, _WIDTH)
    return {
        "in_order": read.gbps,
        "random_rows": roof.bandwidth.gbps,
        "sum": moved / times["sum"].median_s / 1e9,
    }


def table(found: Found) -> Table:
    """Return the ten lines, made from the result of :func:`onehop.cli.info.facts`."""
    return Table(COLUMNS, [line(found) for line in _LINES], "onehop")


def _versions(found: Found) -> Line:
    versions = found["versions"]
    names = {"onehop": "onehop", "Python": "python", "torch": "torch", "PyG": "torch_geometric", "DGL": "dgl"}
    state = ", ".join(f"{name} {versions[key]}" for name, key in names.items() if versions[key])
    missing = versions["torch_geometric"] is None and versions["dgl"] is None
    return Line("versions", state, "pip install 'onehop[pyg]'" if missing else "")


def _system(found: Found) -> Line:
    return Line("system", f"{found['machine']['system']}, {found['c_library'] or 'a C library unknown here'}")


def _processor(found: Found) -> Line:
    machine = found["machine"]
    caches = ", ".join(f"{name} {readable(size)}" for name, size in machine["caches_bytes"].items())
    parts = (
        machine["processor"],
        f"{machine['cores']} cores",
        caches,
        f"{readable(machine['memory_bytes'])} memory",
    )
    return Line("processor", ", ".join(part for part in parts if part))


def _instructions(found: Found) -> Line:
    used, best = found["isa"], found["isas"][0]
    state = f"{used} ({found['vector_bytes']} bytes a vector)"
    if used != best:
        return Line("instruction set", f"{state}; {best} is there too", "unset ONEHOP_ISA")
    remedy = "" if used != "portable" else "ONEHOP_ISAS=native pip install . (in a checkout)"
    return Line("instruction set", state, remedy)


def _threads(found: Found) -> Line:
    threads, cores = found["threads"], found["machine"]["cores"]
    if not found["openmp_bound"]:
        return Line("threads", "1: torch's OpenMP was not found", "pip install --force-reinstall torch")
    remedy = f"export OMP_NUM_THREADS={cores}" if threads < cores else ""
    return Line("threads", f"{threads} on {cores} cores", remedy)


def _memory(found: Found) -> Line:
    measured = found["bandwidth"]
    if measured is None:
        return Line("memory", "not measured", "onehop info")
    share = 100 * measured["sum"] / measured["random_rows"]
    state = (
        f"{measured['in_order']:.1f} GB/s in order, {measured['random_rows']:.1f} GB/s for random rows; a "
        f"sum reaches {measured['sum']:.1f} GB/s ({share:.0f} %)"
    )
    return Line("memory", state, "onehop tune, for your graph")


def _huge_pages(found: Found) -> Line:
    state = found["machine"]["huge_pages"] or "unknown"
    off = "[never]" in state
    remedy = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled" if off else ""
    return Line("huge pages", state, remedy)


def _allocator(found: Found) -> Line:
    loaded = [name for name in _ALLOCATORS if name in os.environ.get("LD_PRELOAD", "")]
    state = ", ".join(loaded) or found["c_library"] or "the C library's"
    if not (found["c_library"] or "").startswith("glibc"):
        return Line("allocator", f"{state}; freed memory is not kept: only with glibc can it be kept")
    if not found["settings"]["ONEHOP_KEEP_MEMORY"].get("effective"):
        return Line("allocator", f"{state}; freed memory is not kept", "unset ONEHOP_KEEP_MEMORY")
    return Line("allocator", f"{state}; under the patch freed memory is kept")


def _libraries(found: Found) -> Line:
    there = {"MKL": torch.backends.mkl.is_available(), "oneDNN": torch.backends.mkldnn.is_available()}
    state = ", ".join(name for name, is_there in there.items() if is_there) or "neither MKL nor oneDNN"
    if not found["dropout_agrees"]:
        state += "; dropout is torch's own: it draws other numbers here than onehop's kernels"
    if not found["operators_known"]:
        state += "; indexing and products are torch's own: this release keeps its kernels in an unknown way"
    return Line("torch's libraries", state, "" if there["oneDNN"] else "pip install --force-reinstall torch")


def _settings(found: Found) -> Line:
    changed = {name: each for name, each in found["settings"].items() if each["set_to"] is not None}
    wrong = [each["error"] for each in changed.values() if "error" in each]
    state = " ".join(wrong) or ", ".join(f"{name}={each['set_to']}" for name, each in changed.items())
    remedy = (
        "" if not wrong else "unset " + " ".join(name for name, each in changed.items() if "error" in each)
    )
    return Line("settings", state or "defaults", remedy)


_LINES: tuple[Callable[[Found], Line], ...] = (
    _versions,
    _system,
    _processor,
    _instructions,
    _threads,
    _memory,
    _huge_pages,
    _allocator,
    _libraries,
    _settings,
)
