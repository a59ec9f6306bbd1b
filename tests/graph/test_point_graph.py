"""Shifts and vectors of graphs of points."""

import copy
import pickle

import pytest
import torch

import onehop
from onehop import ArgumentError, Graph
from onehop.graph import PointGraph

CELL = torch.tensor([[1.1, 0, 0], [0.4, 1.2, 0], [-0.3, 0.5, 0.9]], dtype=torch.float64)


def atoms(count: int = 5) -> torch.Tensor:
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(count), dtype=torch.float64) @ CELL


def naive_vectors(graph: PointGraph, pos: torch.Tensor, cells: list[torch.Tensor], batch: list[int]):
    rows = []
    for source, target, shift in zip(*graph.edge_index().tolist(), graph.shifts.double(), strict=True):
        rows.append(pos[source] + shift @ cells[batch[target]] - pos[target])
    return torch.stack(rows)


def test_vectors():
    pos = atoms()
    graph = Graph.from_points(pos, radius=1.4, cell=CELL)
    vectors = graph.vectors(pos, CELL)
    torch.testing.assert_close(vectors, naive_vectors(graph, pos, [CELL], [0] * 5))
    torch.testing.assert_close(graph.lengths(pos, CELL), vectors.norm(dim=1))
    # As the search computes them.
    assert bool((vectors.square().sum(1) < 1.4 * 1.4).all())
    assert graph.num_edges > 50


def test_vectors_of_several_structures():
    pos, batch = atoms(6), torch.tensor([0, 0, 2, 2, 2, 2])
    cells = torch.stack([CELL, CELL, CELL * 1.3])
    graph = Graph.from_points(pos, radius=1.4, cell=cells, batch=batch)
    expected = naive_vectors(graph, pos, list(cells), batch.tolist())
    torch.testing.assert_close(graph.vectors(pos, cells), expected)
    one = Graph.from_points(pos, radius=1.4, cell=CELL, batch=batch)
    torch.testing.assert_close(one.vectors(pos, CELL), naive_vectors(one, pos, [CELL] * 3, batch.tolist()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_have_the_type_of_the_positions(dtype):
    pos = atoms().to(dtype)
    graph = Graph.from_points(pos, radius=1.4, cell=CELL)
    vectors = graph.vectors(pos, CELL)
    assert (vectors.dtype, graph.lengths(pos, CELL).dtype) == (dtype, dtype)
    torch.testing.assert_close(vectors.double(), graph.vectors(pos.double(), CELL), rtol=0, atol=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_gradients(several):
    batch = torch.tensor([0, 0, 1, 1, 1]) if several else None
    cell = (torch.stack([CELL, 1.2 * CELL]) if several else CELL.clone()).requires_grad_()
    pos = atoms().requires_grad_()
    graph = Graph.from_points(pos, radius=1.0, cell=cell, batch=batch)
    assert graph.num_edges
    assert torch.autograd.gradcheck(graph.vectors, (pos, cell))
    assert torch.autograd.gradcheck(graph.lengths, (pos, cell))
    assert torch.autograd.gradgradcheck(graph.lengths, (pos, cell))


def test_derivatives_of_a_length_of_zero_are_zero():
    pos = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    graph = Graph.from_points(pos, radius=0.5, cell=torch.eye(3))
    lengths = graph.lengths(pos, torch.eye(3))
    assert lengths.tolist() == [0, 0]
    (first,) = torch.autograd.grad(lengths.sum(), pos, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), pos)
    assert torch.equal(first, torch.zeros(2, 3).double())
    assert torch.equal(second, torch.zeros(2, 3).double())


@pytest.mark.parametrize("options", [{"k": 2}, {"radius": 0.8}, {"radius": 0.8, "pbc": False}])
@pytest.mark.parametrize("dims", [2, 3])
def test_points_without_a_cell(dims, options):
    pos = torch.randn(9, dims, generator=torch.Generator().manual_seed(0))
    batch = torch.tensor([0, 0, 0, 0, 2, 2, 2, 2, 2])
    graph = Graph.from_points(pos, batch=batch, **options)
    assert torch.equal(graph.shifts, torch.zeros(graph.num_edges, dims, dtype=torch.int32))
    source, target = graph.edge_index()
    assert torch.equal(graph.vectors(pos), pos[source] - pos[target])
    assert torch.equal(batch[source], batch[target])
    same = Graph.from_points(pos, ptr=torch.tensor([0, 4, 4, 9]), **options)
    assert torch.equal(same.edge_index(), graph.edge_index())


def test_without_a_cell_the_vectors_are_those_of_an_open_cell():
    pos = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    graph, opened = (
        Graph.from_points(pos, radius=1.0),
        Graph.from_points(pos, radius=1.0, cell=CELL, pbc=False),
    )
    edges, expected = (sorted(each.edge_index().t().tolist()) for each in (graph, opened))
    assert edges == expected != []


def test_the_graph_is_a_graph():
    pos = atoms()
    graph = Graph.from_points(pos, radius=1.4, cell=CELL)
    plain = Graph.from_edge_index(graph.edge_index(), 5)
    x = torch.randn(5, 4)
    weight = torch.rand(graph.num_edges)
    assert torch.equal(onehop.aggregate(graph, x, weight), onehop.aggregate(plain, x, weight))
    assert torch.equal(graph.edge_index()[1], graph.edge_index()[1].sort().values)
    assert graph.nbytes >= plain.nbytes + graph.shifts.nbytes


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_keep_shifts_and_structures(copied):
    pos, batch = atoms(), torch.tensor([0, 0, 1, 1, 1])
    cells = torch.stack([CELL, 1.2 * CELL])
    graph = Graph.from_points(pos, radius=1.4, cell=cells, batch=batch)
    other = copied(graph)
    assert torch.equal(other.edge_index(), graph.edge_index())
    assert torch.equal(other.shifts, graph.shifts)
    assert torch.equal(other.vectors(pos, cells), graph.vectors(pos, cells))


def test_the_convention_of_mace():
    """Receivers less senders plus shifts, as in mace.modules.utils.get_edge_vectors_and_lengths."""
    pos = atoms()
    graph = Graph.from_points(pos, radius=1.4, cell=CELL)
    sender, receiver = graph.edge_index()
    unit_shifts = -graph.shifts.double()
    vectors = pos[receiver] - pos[sender] + unit_shifts @ CELL
    torch.testing.assert_close(vectors, -graph.vectors(pos, CELL))


def test_bad_input():
    pos = atoms()
    graph, opened = Graph.from_points(pos, radius=1.4, cell=CELL), Graph.from_points(pos, radius=1.4)
    for wrong in (pos[:4], pos[:, :2], pos.long(), None, pos[0]):
        with pytest.raises(
            ArgumentError, match=r"^pos: expected floating-point numbers of shape \[5, 3\], got"
        ):
            graph.vectors(wrong, CELL)
    with pytest.raises(ArgumentError, match=r"^cell: the graph was made with a cell; give it"):
        graph.vectors(pos)
    with pytest.raises(ArgumentError, match=r"^cell: the graph was made without a cell; omit it"):
        opened.lengths(pos, CELL)
    for cell in (CELL[:2], CELL.expand(2, 3, 3), CELL.to(torch.complex128)):
        with pytest.raises(ArgumentError, match=r"^cell: expected real numbers of shape \[3, 3\]"):
            graph.vectors(pos, cell)
    with pytest.raises(ArgumentError, match=r"^cell: expected a dense tensor on cpu"):
        graph.vectors(pos, CELL.to("meta"))
