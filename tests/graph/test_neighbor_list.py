"""Lists of neighbours that are kept while atoms move: at every step the edges of a new search."""

import math

import pytest
import torch
from torch import Tensor

from onehop import ArgumentError, Graph
from onehop.graph import NeighborList, PointGraph

CELL = torch.tensor([[4.0, 0, 0], [1.1, 3.8, 0], [-0.7, 0.9, 4.2]], dtype=torch.float64)


def walk(pos: Tensor, steps: int, size: float, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    places = [pos]
    for _ in range(steps):
        places.append(places[-1] + size * torch.randn(pos.shape, generator=generator, dtype=pos.dtype))
    return places


def atoms(count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ((torch.rand(count, 3, generator=generator, dtype=torch.float64) * 2 - 0.5) @ CELL).to(dtype)


def same(graph: PointGraph, expected: PointGraph) -> bool:
    assert torch.equal(graph.rowptr, expected.rowptr)
    assert torch.equal(graph.col, expected.col)
    assert torch.equal(graph.shifts, expected.shifts)
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pbc", [None, (True, False, True), False])
def test_a_random_walk(pbc, dtype):
    neighbors = NeighborList(1.5, skin=0.4, pbc=pbc)
    counts = set()
    for pos in walk(atoms(40, dtype=dtype), 60, 0.02):
        graph = neighbors.update(pos, CELL)
        assert same(graph, Graph.from_points(pos, radius=1.5, cell=CELL, pbc=pbc))
        counts.add(graph.num_edges)
    assert 2 < neighbors.searches < 30
    assert len(counts) > 3


def test_no_cell():
    neighbors = NeighborList(1.5, skin=0.4)
    for pos in walk(atoms(40), 30, 0.02):
        graph = neighbors.update(pos)
        expected = Graph.from_points(pos, radius=1.5)
        assert sorted(graph.edge_index().t().tolist()) == sorted(expected.edge_index().t().tolist())
        assert torch.equal(graph.vectors(pos), pos[graph.edge_index()[0]] - pos[graph.edge_index()[1]])
    assert 1 < neighbors.searches < 15


@pytest.mark.parametrize("pbc", [None, (True, False, True), (False, False, True)])
def test_a_cell_that_changes(pbc):
    """Atoms follow the cell, which shrinks, shears and turns; its vectors that do not repeat vanish."""
    neighbors = NeighborList(1.5, skin=0.5, pbc=pbc)
    generator = torch.Generator().manual_seed(1)
    pos, cell = atoms(40), CELL
    for step in range(60):
        strain = 0.99 * torch.eye(3) + 0.01 * torch.randn(3, 3, generator=generator)
        pos, cell = pos @ strain.double(), cell @ strain.double()
        pos = pos + 0.005 * torch.randn(pos.shape, generator=generator)
        given = cell if pbc is None or step % 2 else cell * torch.tensor(pbc).unsqueeze(1)
        graph = neighbors.update(pos, given)
        assert same(graph, Graph.from_points(pos, radius=1.5, cell=given, pbc=pbc))
    assert 2 < neighbors.searches < 30


def test_a_smaller_cell_brings_neighbours_nearer():
    """The atom does not move, and its images do."""
    neighbors, pos = NeighborList(1.0, skin=0.2), torch.zeros(1, 3)
    assert neighbors.update(pos, torch.eye(3) * 1.3).num_edges == 0
    assert neighbors.update(pos, torch.eye(3) * 1.15).num_edges == 0
    assert neighbors.update(pos, torch.eye(3) * 0.99).num_edges == 6
    assert neighbors.searches > 1


def test_a_larger_cell_needs_no_search():
    neighbors, pos = NeighborList(1.0, skin=0.1), atoms(20)
    for factor in (1.0, 1.05, 1.2, 1.5):
        cell = CELL * factor
        assert same(
            neighbors.update(pos * factor, cell), Graph.from_points(pos * factor, radius=1.0, cell=cell)
        )
    assert neighbors.searches == 1


def test_the_skin_is_used_up_by_half_of_it():
    """Two atoms that come towards each other, each by nearly half, and by more than half of the skin."""
    cell = torch.eye(3) * 20
    pos = torch.tensor([[0.0, 0, 0], [2.19, 0, 0]], dtype=torch.float64)
    toward = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]])
    neighbors = NeighborList(2.0, skin=0.2)
    assert neighbors.update(pos, cell).num_edges == 0
    assert neighbors.update(pos + 0.0999 * toward, cell).num_edges == 2
    assert neighbors.searches == 1
    # An atom that the search did not reach.
    pos[1, 0] = 2.205
    neighbors = NeighborList(2.0, skin=0.2)
    assert neighbors.update(pos, cell).num_edges == 0
    assert neighbors.update(pos + 0.104 * toward, cell).num_edges == 2
    assert neighbors.searches == 2


def test_several_structures():
    """One structure moves, and the other one's cell shrinks."""
    batch, cells = torch.tensor([0] * 12 + [2] * 9), torch.stack([CELL, CELL, 0.8 * CELL])
    pbc = torch.tensor([[True, True, True], [True, True, True], [False, True, True]])
    neighbors = NeighborList(1.5, skin=0.4, pbc=pbc, batch=batch)
    for step, pos in enumerate(walk(atoms(21), 40, 0.02)):
        cells[2] *= 0.999
        graph = neighbors.update(pos, cells)
        assert same(graph, Graph.from_points(pos, radius=1.5, cell=cells, pbc=pbc, batch=batch)), step
    assert 1 < neighbors.searches < 25


def test_further_structures_without_atoms():
    neighbors = NeighborList(1.5, skin=0.4, batch=torch.tensor([0, 0, 1]))
    for count in (2, 4, 3):
        cells = CELL.expand(count, 3, 3)
        expected = Graph.from_points(atoms(3), radius=1.5, cell=CELL, batch=torch.tensor([0, 0, 1]))
        assert same(neighbors.update(atoms(3), cells), expected)


def test_other_atoms_are_searched_anew():
    neighbors = NeighborList(1.5, skin=5.0)
    for count in (5, 9, 0, 1, 5):
        pos = atoms(count)
        assert same(neighbors.update(pos, CELL), Graph.from_points(pos, radius=1.5, cell=CELL))
    assert neighbors.searches == 5


def test_results_are_not_what_is_kept():
    pos = atoms(10)
    neighbors = NeighborList(1.5, skin=0.0)
    first = neighbors.update(pos, CELL)
    first.shifts.fill_(7)
    assert same(neighbors.update(pos, CELL), Graph.from_points(pos, radius=1.5, cell=CELL))
    moved = atoms(10)
    neighbors.update(moved, CELL)
    moved.add_(1.0)
    moved[3] += 0.5
    assert same(neighbors.update(moved, CELL), Graph.from_points(moved, radius=1.5, cell=CELL))


def test_bad_input():
    for radius in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ArgumentError, match=r"^radius: with a cell"):
            NeighborList(radius, skin=0.1)
    for skin in (-0.1, math.nan, math.inf):
        with pytest.raises(ArgumentError, match=r"^skin: expected a finite distance of at least 0"):
            NeighborList(1.0, skin=skin)
    neighbors = NeighborList(1.0, skin=0.1, pbc=True)
    with pytest.raises(ArgumentError, match=r"^pbc: expected None or False without a cell"):
        neighbors.update(atoms(3))
    neighbors.update(atoms(3), CELL)
    with pytest.raises(ArgumentError, match=r"^cell: .* linearly dependent"):
        neighbors.update(atoms(3), torch.ones(3, 3))
    with pytest.raises(ArgumentError, match=r"^pos: row 1 is not finite"):
        neighbors.update(torch.tensor([[0.0, 0, 0], [math.nan, 0, 0], [0, 0, 0]]), CELL)
    # The list from before the error is still right.
    assert same(neighbors.update(atoms(3), CELL), Graph.from_points(atoms(3), radius=1.0, cell=CELL))
