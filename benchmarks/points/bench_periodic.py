"""Neighbours in cells that repeat, beside matscipy, ASE and torch_cluster where they are installed.

    python -m benchmarks.points.bench_periodic [--peers matscipy,ase] [--atoms 1000,1000000] [--json FILE]

Atoms are uniform in a cubic cell. matscipy and ASE must find the same neighbours and shifts before anything
is measured. torch_cluster knows no cells: it searches among the atoms alone, for at most ``MOST`` neighbours
of each, and is shown beside our search without a cell. The memory is that of two calls, added to a process of
their own. "kept" is a step of ``NeighborList`` after a search.
"""

import importlib.util
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row, steady
from onehop.bench.timing import in_turns
from onehop.graph import Graph, NeighborList

RADIUS = 5.0
SKIN = 0.5
# ASE's search takes minutes for more.
ASE_ATOMS = 10_000
# torch_cluster needs a bound.
MOST = 512
TURN_S = 0.2


def atoms(count: int, neighbours: int) -> tuple[Tensor, Tensor]:
    """Return positions, [N, 3], and a cell in which atoms have so many neighbours on average."""
    side = (count * 4 / 3 * math.pi * RADIUS**3 / neighbours) ** (1 / 3)
    places = torch.rand(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return places * side, side * torch.eye(3, dtype=torch.float64)


def calls(pos: Tensor, cell: Tensor, peers: list[str]) -> dict[str, Callable[[], object]]:
    """Return the searches by name; those that are not installed are left out."""
    found: dict[str, Callable[[], object]] = {
        "onehop": partial(Graph.from_points, pos, radius=RADIUS, cell=cell),
    }
    found["kept"] = partial(NeighborList(RADIUS, skin=SKIN).update, pos, cell)
    if "matscipy" in peers:
        from matscipy.neighbours import neighbour_list

        found["matscipy"] = partial(
            neighbour_list,
            "ijS",
            cutoff=RADIUS,
            positions=pos.numpy(),
            cell=cell.numpy(),
            pbc=np.ones(3, bool),
        )
    if "ase" in peers and len(pos) <= ASE_ATOMS:
        from ase.neighborlist import primitive_neighbor_list

        found["ase"] = partial(
            primitive_neighbor_list, "ijS", np.ones(3, bool), cell.numpy(), pos.numpy(), RADIUS
        )
    if "torch_cluster" in peers:
        import torch_cluster

        found["onehop, no cell"] = partial(Graph.from_points, pos, radius=RADIUS)
        found["torch_cluster"] = partial(
            torch_cluster.radius_graph,
            pos,
            RADIUS,
            max_num_neighbors=MOST,
            num_workers=torch.get_num_threads(),
        )
    return found


def _edges(found: object) -> np.ndarray:
    """Return neighbours as sorted rows: atom, neighbour, shifts."""
    if isinstance(found, Graph):
        source, target = found.edge_index()
        rows = torch.cat([torch.stack([target, source], 1), found.shifts], 1).numpy()  # type: ignore[attr-defined]
    else:
        i, j, shifts = found  # type: ignore[misc]
        rows = np.column_stack([i, j, shifts])
    return rows[np.lexsort(rows.T[::-1])]


def _peak(order: Row) -> int:
    """Return the memory that a search adds to this process."""
    torch.set_num_threads(order["threads"])
    pos, cell = atoms(order["atoms"], order["neighbours"])
    call = calls(pos, cell, order["peers"])[order["name"]]
    return harness.added_bytes(call)


def rows(options: Options) -> Iterator[Row]:
    """Times and memory of searches of each size."""
    peers = [name for name in options.peers if importlib.util.find_spec(name)]
    for count in options.atoms:
        pos, cell = atoms(count, options.neighbours)
        ways = calls(pos, cell, peers)
        expected = _edges(ways["onehop"]())
        for name in {"kept", "matscipy", "ase"} & set(ways):
            if not np.array_equal(_edges(ways[name]()), expected):
                raise SystemExit(f"{name} finds other neighbours of {count} atoms; nothing was measured.")
        times = in_turns({name: steady(call, TURN_S) for name, call in ways.items()}, options.rounds)
        order = {
            "atoms": count,
            "neighbours": options.neighbours,
            "peers": peers,
            "threads": torch.get_num_threads(),
        }
        yield {
            "atoms": count,
            "neighbours": len(expected) / count,
            **harness.compared(times, "matscipy" if "matscipy" in ways else None),
            "added_bytes": {name: harness.apart(_peak, order | {"name": name}) for name in ways},
        }


BENCHMARK = Benchmark(
    "bench periodic",
    rows,
    "atoms | atoms | {}; neighbours | neighbours | {:.1f}; onehop, ms | seconds/onehop/median_s | ms; "
    "kept, ms | seconds/kept/median_s | ms; matscipy, ms | seconds/matscipy/median_s | ms; "
    "ase, ms | seconds/ase/median_s | ms; torch_cluster, ms | seconds/torch_cluster/median_s | ms; "
    "speed-up over matscipy | speedup | gain speedup_quartiles",
    {
        "peers": Option(("matscipy", "ase", "torch_cluster"), "packages beside which to measure"),
        "atoms": Option((1_000, 10_000, 100_000, 1_000_000), "numbers of atoms"),
        "neighbours": Option(50, "average number of neighbours of an atom"),
    },
    rounds=5,
)

if __name__ == "__main__":
    BENCHMARK.main()
