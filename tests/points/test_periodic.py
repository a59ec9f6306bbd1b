"""Neighbours in cells that repeat, against all shifts within a bound, and against ASE and matscipy."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onehop import ArgumentError, Graph
from onehop.graph import PointGraph
from onehop.points import periodic
from tests.points.naive import images

ALL = (True, True, True)
BOUNDARIES = list(itertools.product((False, True), repeat=3))


def edges(graph: PointGraph) -> list[tuple[int, ...]]:
    """Destination, source and shifts of each edge, in the graph's order."""
    source, target = graph.edge_index()
    return [tuple(row) for row in torch.cat([torch.stack([target, source], 1), graph.shifts], 1).tolist()]


def search(pos: Tensor, cell: Tensor, pbc: Any = ALL, radius: float = 1.0) -> list[tuple[int, ...]]:
    return edges(Graph.from_points(pos, radius=radius, cell=cell, pbc=pbc))


def atoms(count: int, cell: Tensor, seed: int, spread: float = 1.0) -> Tensor:
    """Positions in the cell, or in several cells around it."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    return ((places - 0.5) * spread + 0.5) @ cell


CELLS = {
    "cubic": torch.eye(3, dtype=torch.float64) * 2.0,
    "rod": torch.diag(torch.tensor([0.4, 3.0, 3.0], dtype=torch.float64)),
    "slab": torch.diag(torch.tensor([3.0, 3.0, 0.3], dtype=torch.float64)),
    "hexagonal": torch.tensor([[1.5, 0, 0], [-0.75, 1.3, 0], [0, 0, 2.0]], dtype=torch.float64),
    "primitive": torch.tensor([[0, 0.8, 0.8], [0.8, 0, 0.8], [0.8, 0.8, 0]], dtype=torch.float64),
    "left-handed": torch.tensor([[0, 1.1, 0.1], [1.2, 0, 0], [0, 0.2, 1.3]], dtype=torch.float64),
    "skewed": torch.tensor([[1.0, 0, 0], [2.6, 1.0, 0], [-1.7, 3.3, 1.0]], dtype=torch.float64),
    "flat": torch.tensor([[1.0, 0, 0], [0.55, 0.83, 0], [0.5, 0.3, 0.35]], dtype=torch.float64),
}


def test_other_constructors_make_graphs_without_points():
    ends = torch.tensor([[0, 1], [1, 2]])
    assert type(PointGraph.from_edge_index(ends, 3)) is Graph
    assert type(PointGraph.from_csr(torch.tensor([0, 1]), ends[0, :1])) is Graph


@pytest.mark.parametrize("pbc", BOUNDARIES)
@pytest.mark.parametrize("kind", CELLS)
def test_every_cell_and_boundary(kind, pbc):
    cell = CELLS[kind]
    for count, radius, spread in ((1, 2.1, 1.0), (2, 1.7, 1.0), (7, 1.1, 3.0), (12, 0.4, 1.0)):
        pos = atoms(count, cell, count, spread)
        found = search(pos, cell, pbc, radius)
        assert found == images(pos, cell, pbc, radius)


def test_an_atom_is_its_own_neighbour_in_a_small_cell():
    found = search(torch.zeros(1, 3), torch.eye(3), ALL, 1.2)
    assert found == [
        (0, 0, *shift) for shift in ((-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, 1), (0, 1, 0), (1, 0, 0))
    ]
    # 4169 points of integers are in the closed ball (OEIS A000605), 30 of them on the sphere.
    assert len(search(torch.zeros(1, 3), torch.eye(3), ALL, 10.0)) == 4169 - 30 - 1


@pytest.mark.parametrize("shear", [7, -113, 1009])
def test_a_sheared_cell_has_the_same_lattice(shear):
    """The same lattice by vectors as long as you like: the same vectors, with other shifts."""
    plain = torch.eye(3, dtype=torch.float64)
    cell = plain.clone()
    cell[1, 0] = shear
    cell[2] += torch.tensor([-shear, 2 * shear, 0])
    pos = atoms(9, plain, 3)
    graph, other = (Graph.from_points(pos, radius=1.3, cell=each) for each in (cell, plain))
    ends, vectors = graph.edge_index(), graph.vectors(pos, cell)
    expected = other.vectors(pos, plain)
    assert graph.num_edges == other.num_edges
    order, other_order = (
        sorted(range(len(v)), key=lambda e, i=i, v=v: (*i[:, e].tolist(), *v[e].round(decimals=6).tolist()))
        for i, v in ((ends, vectors), (other.edge_index(), expected))
    )
    torch.testing.assert_close(vectors[order], expected[other_order], rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 0.1, 1 / 3, 1e-5, 1e5])
@pytest.mark.parametrize("steps", [1.0, math.sqrt(2), math.sqrt(3), 2.0])
def test_distances_at_the_radius_are_compared_exactly(scale, steps):
    """All neighbours of a crystal are at the radius up to rounding, also where the atoms are moved away."""
    cell = torch.eye(3, dtype=torch.float64) * 2 * scale
    sites = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64) * scale
    for offset in (0.0, 0.3 * scale, -1234.567 * scale, 1e6 * scale):
        pos = sites + offset
        assert search(pos, cell, ALL, steps * scale) == images(pos, cell, ALL, steps * scale)


def test_exact_distances_are_no_neighbours():
    cell = torch.eye(3) * 4
    pos = torch.tensor([[0.0, 0, 0], [1.0, 0, 0], [0, 0, 3.0]])
    assert search(pos, cell, ALL, 1.0) == []
    assert len(search(pos, cell, ALL, math.nextafter(1.0, 2.0))) == 4


@pytest.mark.parametrize("pbc", BOUNDARIES)
def test_vectors_that_do_not_repeat_have_no_effect(pbc):
    cell = CELLS["skewed"]
    pos = atoms(8, cell, 1, 2.0)
    without = cell * torch.tensor(pbc).unsqueeze(1)
    assert search(pos, without, pbc, 1.3) == search(pos, cell, pbc, 1.3) == images(pos, cell, pbc, 1.3)


def test_atoms_far_outside_the_cell():
    cell = CELLS["primitive"]
    generator = torch.Generator().manual_seed(0)
    inside = atoms(6, cell, 5)
    away = torch.randint(-1000, 1000, (6, 3), generator=generator)
    pos = inside + away.double() @ cell
    graph = Graph.from_points(pos, radius=1.5, cell=cell)
    vectors, expected = graph.vectors(pos, cell), Graph.from_points(inside, radius=1.5, cell=cell)
    source, target = graph.edge_index()
    moved = [
        (*pair, *shift)
        for pair, shift in zip(
            torch.stack([target, source], 1).tolist(),
            (graph.shifts + away[source] - away[target]).tolist(),
            strict=True,
        )
    ]
    assert sorted(moved) == edges(expected)
    assert float(vectors.norm(dim=1).max()) < 1.5


def test_atoms_at_the_same_place():
    cell = torch.eye(3) * 5
    pos = torch.ones(4, 3)
    found = search(pos, cell, ALL, 0.5)
    assert found == [(i, j, 0, 0, 0) for i in range(4) for j in range(4) if i != j]
    # The image of one atom, and another atom at its place.
    pos = torch.tensor([[0.0, 0, 0], [5.0, 0, 0]])
    assert search(pos, cell, ALL, 0.5) == [(0, 1, -1, 0, 0), (1, 0, 1, 0, 0)]


@pytest.mark.parametrize("pbc", [ALL, (True, False, True), (False, False, False)])
def test_many_atoms(isa, pbc):
    """Many columns, tasks and neighbours, few and many in a row."""
    cell = CELLS["hexagonal"] * 3
    pos = atoms(400, cell, 11, 1.5)
    for radius in (0.5, 1.6):
        assert search(pos, cell, pbc, radius) == images(pos, cell, pbc, radius)


def test_clusters_far_from_each_other():
    """Columns stay few where space is nearly empty."""
    cell = torch.eye(3, dtype=torch.float64)
    pos = torch.cat([atoms(20, cell, 1), atoms(20, cell, 2) + 1e7, torch.tensor([[-1e9, 3e9, 1e5]])])
    none = (False, False, False)
    assert search(pos, cell, none, 0.6) == images(pos, cell, none, 0.6) != []


def test_threads_change_nothing():
    cell = CELLS["skewed"] * 4
    pos = atoms(3000, cell, 2)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            graph = Graph.from_points(pos, radius=0.9, cell=cell)
            found.append((graph.rowptr, graph.col, graph.shifts))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert found[0][1].numel() > 10_000


def test_single_precision_positions_are_taken_as_they_are():
    cell = CELLS["flat"].float()
    pos = atoms(9, cell.double(), 4).float()
    assert search(pos, cell, ALL, 1.0) == images(pos, cell, ALL, 1.0)


def test_several_structures():
    cells = torch.stack([CELLS["cubic"], CELLS["skewed"], CELLS["slab"], CELLS["rod"]])
    pbc = torch.tensor([[True, True, True], [True, False, True], [False, False, False], [True, False, False]])
    counts = [5, 0, 8, 3]
    parts = [atoms(count, cell, 7, 2.0) for count, cell in zip(counts, cells, strict=True)]
    batch = torch.repeat_interleave(torch.tensor(counts))
    graph = Graph.from_points(torch.cat(parts), radius=1.4, cell=cells, pbc=pbc, batch=batch)
    expected, first = [], 0
    for part, cell, repeats in zip(parts, cells, pbc.tolist(), strict=True):
        found = images(part, cell, tuple(repeats), 1.4)
        expected += [(dst + first, src + first, *shift) for dst, src, *shift in found]
        first += len(part)
    assert edges(graph) == expected
    ptr = torch.tensor([0, 5, 5, 13, 16])
    assert edges(Graph.from_points(torch.cat(parts), radius=1.4, cell=cells, pbc=pbc, ptr=ptr)) == expected


def test_one_cell_for_several_structures():
    cell = CELLS["cubic"]
    pos = atoms(6, cell, 3)
    graph = Graph.from_points(pos, radius=1.4, cell=cell, batch=torch.tensor([0, 0, 0, 2, 2, 2]))
    first, second = images(pos[:3], cell, ALL, 1.4), images(pos[3:], cell, ALL, 1.4)
    assert edges(graph) == first + [(dst + 3, src + 3, *shift) for dst, src, *shift in second]


@pytest.mark.parametrize("cell", [torch.eye(3), torch.zeros(0, 3, 3), torch.eye(3).expand(2, 3, 3)])
def test_no_atoms(cell):
    batch = torch.zeros(0, dtype=torch.int64) if cell.dim() == 3 else None
    graph = Graph.from_points(torch.zeros(0, 3), radius=1.0, cell=cell, batch=batch)
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (0, 0, 0)
    assert (graph.shifts.shape, graph.shifts.dtype) == ((0, 3), torch.int32)
    assert graph.vectors(torch.zeros(0, 3), cell).shape == (0, 3)
    assert graph.lengths(torch.zeros(0, 3), cell).shape == (0,)


def test_no_neighbours():
    pos, cell = torch.zeros(1, 3), torch.eye(3) * 9
    graph = Graph.from_points(pos, radius=1.0, cell=cell)
    assert (graph.num_dst, graph.num_edges) == (1, 0)
    shapes = [each.shape for each in (graph.edge_index(), graph.shifts, graph.vectors(pos, cell))]
    assert shapes == [(2, 0), (0, 3), (0, 3)]


def random_cases(count: int) -> Iterator[tuple[Any, ...]]:
    generator = np.random.default_rng(0)
    for _ in range(count):
        cell = generator.normal(size=(3, 3)) * generator.choice([1.0, 3.0, 6.0])
        if abs(np.linalg.det(cell)) > 0.02 * np.prod(np.linalg.norm(cell, axis=1)):
            atoms, pbc = int(generator.integers(1, 25)), generator.random(3) < 0.7
            pos = (generator.random((atoms, 3)) * 3 - 1) @ cell
            yield pos, cell, pbc, float(generator.choice([0.5, 1.5, 3.5]))


def test_matscipy_finds_the_same():
    neighbours = pytest.importorskip("matscipy.neighbours")
    for pos, cell, pbc, radius in random_cases(60):
        i, j, shift = neighbours.neighbour_list("ijS", cutoff=radius, positions=pos, cell=cell, pbc=pbc)
        expected = sorted(map(tuple, np.column_stack([i, j, shift]).tolist()))
        given = [torch.from_numpy(each) for each in (pos, cell, pbc)]
        assert search(*given, radius) == expected


def test_ase_finds_the_same():
    neighbours = pytest.importorskip("ase.neighborlist")
    for pos, cell, pbc, radius in random_cases(12):
        i, j, shift, vectors = neighbours.primitive_neighbor_list("ijSD", pbc, cell, pos, radius)
        order = np.lexsort(np.column_stack([shift[:, ::-1], j, i]).T)
        expected = np.column_stack([i, j, shift])[order].tolist()
        given, inside, repeats = (torch.from_numpy(each) for each in (pos, cell, pbc))
        graph = Graph.from_points(given, radius=radius, cell=inside, pbc=repeats)
        assert edges(graph) == list(map(tuple, expected))
        torch.testing.assert_close(graph.vectors(given, inside), torch.from_numpy(vectors[order]))


POS, CELL = torch.rand(4, 3), torch.eye(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pos": torch.rand(4, 2)}, r"^pos: with a cell, expected shape \[N, 3\], got \[4, 2\]"),
        ({"pos": torch.rand(4)}, r"^pos: with a cell, expected shape \[N, 3\], got \[4\]"),
        ({"pos": torch.tensor([[0.0, 0, 0], [0, math.nan, 0]])}, r"^pos: row 1 is not finite"),
        ({"pos": torch.tensor([[math.inf, 0, 0]])}, r"^pos: row 0 is not finite"),
        ({"pos": torch.tensor([[3e9, 0, 0]])}, r"^pos: images of atoms of structure 0 .* more than"),
        ({"cell": torch.eye(2)}, r"^cell: expected real numbers of shape \[3, 3\] or \[1, 3, 3\].*\[2, 2\]"),
        ({"cell": torch.eye(3).expand(2, 3, 3)}, r"^cell: .* for 1 structures, got .* \[2, 3, 3\]"),
        ({"cell": torch.ones(3)}, r"^cell: .* of shape \[3\]"),
        ({"cell": np.eye(3)}, r"^cell: expected a dense tensor on cpu"),
        ({"cell": torch.eye(3, dtype=torch.complex64)}, r"^cell: expected real numbers"),
        ({"cell": torch.eye(3) * math.nan}, r"^cell: expected finite numbers"),
        ({"cell": torch.eye(3) * math.inf}, r"^cell: expected finite numbers"),
        ({"cell": torch.zeros(3, 3)}, r"^cell: the vectors of structure 0 that repeat are linearly dep"),
        ({"cell": torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, 0]])}, r"^cell: .* linearly dependent"),
        (
            {"cell": torch.tensor([[1.0, 0, 0], [1e10, 1, 0], [0, 0, 1]])},
            r"^cell: .* more than 2\*\*30 times",
        ),
        ({"cell": torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])}, r"^cell: .* linearly dependent"),
        (
            {"cell": torch.tensor([[1.0, 0, 0], [2, 0, 0], [0, 0, 0]]), "pbc": (True, True, False)},
            r"^cell: .* linearly dependent",
        ),
        (
            {"cell": torch.tensor([[1, 0, 0], [0, 1, 0], [2**0.5, 3**0.5, 0]], dtype=torch.float64)},
            r"^cell: .* linearly dependent",
        ),
        ({"radius": 0.0}, r"^radius: with a cell, expected a finite distance above 0, got 0"),
        ({"radius": -1.0}, r"^radius: with a cell"),
        ({"radius": math.nan}, r"^radius: with a cell"),
        ({"radius": math.inf}, r"^radius: with a cell"),
        ({"radius": "far"}, r"^radius: with a cell"),
        ({"radius": 1e6}, r"^radius: within 1e\+06 of the atoms of structures 0 to 0 there are more than"),
        ({"radius": 1e300}, r"^radius: within 1e\+300"),
        ({"k": 3}, r"^k: with a cell, expected None, got 3"),
        ({"pbc": (True, False)}, r"^pbc: expected a boolean, three"),
        ({"pbc": (1, 1, 1)}, r"^pbc: expected a boolean, three"),
        ({"pbc": "TTT"}, r"^pbc: expected a boolean, three"),
        (
            {"pbc": torch.ones(2, 3, dtype=torch.bool)},
            r"^pbc: .* \[1, 3\] for 1 structures, got shape \[2, 3\]",
        ),
        ({"cell": None, "pbc": "TTT"}, r"^pbc: expected a boolean, three"),
        ({"pos": torch.tensor(1.0), "batch": torch.zeros(1).long()}, r"^batch: expected shape \[0\]"),
        ({"pos": None}, r"^pos: expected a dense tensor"),
        ({"cell": None, "pbc": (True, False, False)}, r"^pbc: expected None or False without a cell"),
        ({"batch": torch.zeros(3, dtype=torch.int64)}, r"^batch: expected shape \[4\], got \[3\]"),
        ({"batch": torch.zeros(4)}, r"^batch: expected an int64 or int32 .* got torch.float32"),
        ({"batch": [0, 0, 0, 0]}, r"^batch: .* got list"),
        ({"batch": torch.tensor([0, 1, 0, 1])}, r"^batch: expected numbers that ascend"),
        ({"batch": torch.tensor([-1, 0, 0, 0])}, r"^batch: expected numbers that ascend"),
        (
            {"batch": torch.tensor([0, 0, 1, 2]), "cell": torch.eye(3).expand(2, 3, 3)},
            r"^batch: expected numbers that ascend and are in \[0, 2\)",
        ),
        (
            {"batch": torch.zeros(4, dtype=torch.int64), "ptr": torch.tensor([0, 4])},
            r"^batch, ptr: expected at most one of them",
        ),
        ({"ptr": torch.tensor([0, 3])}, r"^ptr: expected numbers that ascend from 0 to the 4 rows of pos"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ArgumentError, match=message):
        Graph.from_points(**{"pos": POS, "radius": 1.0, "cell": CELL} | options)


def test_too_many_neighbours_are_noticed_before_they_are_written(monkeypatch):
    monkeypatch.setattr("onehop.config.physical_memory_bytes", lambda: 1 << 20)
    with pytest.raises(ArgumentError, match=r"^radius: the 300 atoms have more than 52428 neighbours"):
        Graph.from_points(torch.rand(300, 3), radius=3.0, cell=torch.eye(3), pbc=False)
    with pytest.raises(ArgumentError, match=r"more than 9362 images of atoms"):
        Graph.from_points(torch.rand(300, 3), radius=3.0, cell=torch.eye(3))


def test_later_writes_to_the_callers_tensors_have_no_effect():
    pos, cell = POS.double(), CELL.double()
    atoms_of = periodic.PeriodicAtoms.of(pos, cell, None, None)
    pos.zero_(), cell.zero_()
    assert torch.equal(atoms_of.pos, POS.double())
    assert torch.equal(atoms_of.cells[0], CELL.double())
