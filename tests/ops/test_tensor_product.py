"""What is special to products of features and harmonics; ``test_conformance.py`` has the rest."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import onehop
from onehop import ArgumentError, BackendError, Graph, TensorPaths, reference
from onehop.graph.handle import GraphInProgram, handle_of
from tests.irreps.test_clebsch_gordan import harmonics as real_harmonics, rotation, turn
from tests.ops.comparison import assert_as_good_as

EDGES, NODES = torch.randint(0, 9, (2, 50), generator=torch.Generator().manual_seed(0)), 10
GRAPH = Graph.from_edge_index(EDGES, NODES)
PATHS = TensorPaths.between("6x0e+5x1o+3x2e", "0e+1o+2e+3o", up_to=3)
MIXING = TensorPaths(
    "6x0e+5x1o",
    "0e+1o+2e",
    "6x0e+4x1o+4x1o+5x2e",
    [
        (0, 0, 0),
        (1, 1, 0, "uvw"),
        (0, 1, 1, "uvw"),
        (1, 0, 1, "uvw"),
        (1, 0, 2, "uvw", 3.0),
        (0, 2, 3, "uvw"),
    ],
)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=dtype)


def operands(paths: TensorPaths, edges: int = EDGES.size(1), shared: bool = False) -> list[Tensor]:
    weights = (paths.weight_numel,) if shared else (edges, paths.weight_numel)
    shapes = (NODES, paths.dim_x), (edges, paths.dim_harmonics), weights
    return [numbers(*shape).requires_grad_() for shape in shapes]


def derivatives(out: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """The result, its gradients, and the gradients of a function of these."""
    pull = numbers(*out.shape, seed=1).requires_grad_()
    first = torch.autograd.grad(out, leaves, pull, create_graph=True)
    bent = sum((grad * numbers(*grad.shape, seed=2)).sum() for grad in first)
    return [out, *first, *torch.autograd.grad(bent, [*leaves, pull])]


@pytest.mark.parametrize(
    ("paths", "shared"), [(PATHS, False), (PATHS, True), (MIXING, False), (MIXING, True)]
)
def test_beside_e3nn(paths, shared):
    o3 = pytest.importorskip("e3nn.o3")
    dtype = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)  # e3nn makes its coefficients in it
        weights = [1.0] * len(paths.paths) if paths is PATHS else [1.0, 1.0, 1.0, 1.0, 3.0, 1.0]
        steps = [(*path[:4], True, weight) for path, weight in zip(paths.paths, weights, strict=True)]
        irreps = paths.x_irreps, paths.harmonics_irreps, paths.out_irreps
        theirs = o3.TensorProduct(*irreps, steps, shared_weights=shared, internal_weights=False)
    finally:
        torch.set_default_dtype(dtype)
    found = []
    for ours in (True, False):
        leaves = x, y, w = operands(paths, shared=shared)
        if ours:
            out = onehop.tensor_product(GRAPH, x, y, w, paths)
        else:
            out = torch.zeros(NODES, paths.dim_out, dtype=x.dtype).index_add(
                0, EDGES[1], theirs(x[EDGES[0]], y, w)
            )
        found.append(derivatives(out, leaves))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def turned(features: Tensor, irreps: tuple, matrix: np.ndarray) -> Tensor:
    """Features, channels first, in a coordinate system that is turned or reflected."""
    sign, parts = round(np.linalg.det(matrix)), []
    for part, irrep in zip(features.split([irrep.dim for irrep in irreps], 1), irreps, strict=True):
        by = torch.from_numpy(turn(irrep.degree, matrix * sign)) * (irrep.parity if sign < 0 else 1)
        parts.append((part.unflatten(1, (irrep.multiplicity, irrep.components)) @ by.T).flatten(1))
    return torch.cat(parts, 1)


@pytest.mark.parametrize("paths", [PATHS, MIXING])
@pytest.mark.parametrize("reflected", [False, True])
def test_results_turn_as_operands_do(paths, reflected):
    matrix = rotation(3) * (-1 if reflected else 1)
    x, _, w = (operand.detach() for operand in operands(paths, shared=True))
    vectors = numbers(EDGES.size(1), 3).numpy()
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def product(x: Tensor, vectors: np.ndarray) -> Tensor:
        columns = [real_harmonics(irrep.degree, vectors) for irrep in paths.harmonics]
        return onehop.tensor_product(GRAPH, x, torch.from_numpy(np.concatenate(columns, 1)), w, paths)

    out = product(x, vectors)
    expected = turned(out, paths.out, matrix)
    torch.testing.assert_close(product(turned(x, paths.x, matrix), vectors @ matrix.T), expected)
    assert not torch.allclose(out, expected)


def test_products_by_hand():
    """A scalar times a direction, and the cross product and scalar product of two vectors."""
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2)
    x = torch.tensor([[2.0, 1.0, 0.0, 0.0], [3.0, 0.0, 1.0, 0.0]])
    directions = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    paths = TensorPaths("1x0e+1x1o", "1o", "1x1o+1x0e+1x1e", [(0, 0, 0), (1, 0, 1), (1, 0, 2)])
    out = onehop.tensor_product(graph, x, directions, torch.ones(3), paths)
    cross = torch.tensor([1.0, 0.0, 1.0]) / math.sqrt(2)
    torch.testing.assert_close(out[1], torch.cat([torch.tensor([0.0, 2.0, 3.0, 0.0]), cross]))
    assert not out[0].any()


@pytest.mark.parametrize("layout", ["mul_ir", "ir_mul"])
@pytest.mark.parametrize("out_layout", [None, "mul_ir", "ir_mul"])
@pytest.mark.parametrize(("paths", "shared"), [(PATHS, False), (MIXING, True), (MIXING, False)])
def test_orders_of_columns(layout, out_layout, paths, shared):
    def ordered(features: Tensor, irreps: tuple, order: str) -> Tensor:
        parts = features.split([irrep.dim for irrep in irreps], 1)
        shapes = [(irrep.multiplicity, irrep.components) for irrep in irreps]
        if order == "ir_mul":
            parts = [part.view(-1, *shape).mT.flatten(1) for part, shape in zip(parts, shapes, strict=True)]
        return torch.cat(list(parts), 1)

    x, y, w = operands(paths, shared=shared)
    expected = ordered(onehop.tensor_product(GRAPH, x, y, w, paths), paths.out, out_layout or layout)
    leaves = [ordered(x, paths.x, layout), y, w]
    options = {"layout": layout, "out_layout": out_layout}
    out = onehop.tensor_product(GRAPH, *leaves, paths, **options)
    torch.testing.assert_close(out, expected)
    naive = reference.tensor_product(EDGES, *leaves, paths, NODES, **options)
    torch.testing.assert_close(naive, expected)


@pytest.mark.parametrize("shared", [False, True])
def test_any_channels_and_degrees(isa, shared):
    """Channels of any number, on each instruction set, and the largest degree."""
    for channels in (*range(1, 20), 31, 64, 100, 257):
        degree = 4 if channels < 5 else 1
        paths = TensorPaths.between(f"{channels}x0e+{channels + 1}x{degree}e", "0e+1e+4e", up_to=4)
        for dtype in (torch.float32, torch.float64):
            found = []
            for function, kind in ((onehop.tensor_product, dtype), (naive, dtype), (naive, torch.float64)):
                leaves = [each.detach().to(dtype).to(kind) for each in operands(paths, shared=shared)]
                leaves = [leaf.requires_grad_() for leaf in leaves]
                out = function(GRAPH, *leaves, paths)
                pull = numbers(*out.shape, seed=1).to(dtype).to(kind)
                found.append([out, *torch.autograd.grad(out, leaves, pull)])
            for ours, same, exact in zip(*found, strict=True):
                assert_as_good_as(f"{channels}", ours, same, exact, 3000.0)


def naive(graph: Graph, x: Tensor, y: Tensor, w: Tensor, paths: TensorPaths) -> Tensor:
    return reference.tensor_product(graph.edge_index(), x, y, w, paths, graph.num_dst)


@pytest.mark.parametrize("special", [math.nan, math.inf])
@pytest.mark.parametrize("place", range(3))
def test_special_numbers_reach_what_they_are_factors_of(place, special):
    """Of several infinite terms, the reference makes infinities or NaN, depending on their signs."""
    for column in range(0, 9, 2):
        leaves = [leaf.detach().clone() for leaf in operands(PATHS)]
        leaves[place][3, column] = special
        leaves = [leaf.requires_grad_() for leaf in leaves]
        found = []
        for function in (onehop.tensor_product, naive):
            out = function(GRAPH, *leaves, PATHS)
            each = [out, *torch.autograd.grad(out.sum(), leaves)]
            found.append([torch.where(tensor.isfinite(), tensor, math.nan) for tensor in each])
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)
        assert 0 < found[0][0].isnan().sum() < found[0][0].numel() / 2


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [(4, 3), (4, 0), (0, 3), (0, 0)])
def test_no_edges(size, shared):
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), size=size)
    w = numbers(*(() if shared else (0,)), PATHS.weight_numel).requires_grad_()
    x, y = numbers(size[0], PATHS.dim_x).requires_grad_(), numbers(0, PATHS.dim_harmonics).requires_grad_()
    out = onehop.tensor_product(graph, x, y, w, PATHS)
    assert out.shape == (size[1], PATHS.dim_out)
    assert not out.any()
    for grad, leaf in zip(torch.autograd.grad(out.sum(), (x, y, w)), (x, y, w), strict=True):
        assert grad.shape == leaf.shape
        assert not grad.any()


def test_no_paths():
    paths = TensorPaths("3x0e", "0e", "2x1o", [])
    x, y, w = operands(paths)
    out = onehop.tensor_product(GRAPH, x, y, w, paths)
    assert out.shape == (NODES, 6)
    assert not out.any()
    for grad, leaf in zip(torch.autograd.grad(out.sum(), (x, y, w)), (x, y, w), strict=True):
        assert grad.shape == leaf.shape
        assert not grad.any()


def test_nothing_has_the_size_of_edges_times_components_times_channels():
    """The largest tensor that torch makes, forward, backward and for second derivatives."""
    paths = TensorPaths.between("16x0e+16x1o+16x2e", "0e+1o+2e", up_to=2)
    edges = torch.randint(0, 20, (2, 4000), generator=torch.Generator().manual_seed(1))
    graph = Graph.from_edge_index(edges, 20)
    leaves = [
        numbers(20, paths.dim_x).requires_grad_(),
        numbers(4000, paths.dim_harmonics).requires_grad_(),
        numbers(4000, paths.weight_numel).requires_grad_(),
    ]
    largest = 0
    with torch.profiler.profile(profile_memory=True) as profile:
        derivatives(onehop.tensor_product(graph, *leaves, paths), leaves)
    for event in profile.events():
        largest = max(largest, event.cpu_memory_usage)
    weights = leaves[2].numel() * 8
    assert weights <= largest < 4 * weights
    assert 4000 * paths.dim_out * 8 > 2.9 * weights


X, Y, W = (leaf.detach() for leaf in operands(PATHS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": X[:, 1:]}, r"x: expected \[10, 36\], as the irreps 6x0e.5x1o.3x2e have, got \[10, 35\]"),
        ({"x": X[1:]}, r"x: expected a row for each of the 10 sources, got shape \[9, 36\]"),
        ({"x": X[None]}, "x: expected a row for each"),
        ({"x": X.int()}, "x: expected float32"),
        ({"harmonics": Y[1:]}, r"harmonics: expected \[50, 16\], a row for each edge .*, got \[49, 16\]"),
        ({"harmonics": Y[:, 1:]}, r"harmonics: expected \[50, 16\].*got \[50, 15\]"),
        ({"harmonics": Y[0]}, r"harmonics: expected \[50, 16\]"),
        ({"harmonics": Y.long()}, "harmonics: expected float32"),
        ({"harmonics": Y.to_sparse()}, "harmonics: expected a dense tensor"),
        ({"harmonics": Y.to("meta")}, "harmonics: expected it on cpu"),
        ({"weights": W[:, 1:]}, r"weights: expected \[50, \d+\] or \[\d+\], as \d+ paths need, got"),
        ({"weights": W[1:]}, "weights: expected"),
        ({"weights": W[0, 1:]}, "weights: expected"),
        ({"weights": W[None]}, "weights: expected"),
        ({"weights": None}, "weights: expected a dense tensor, got NoneType"),
        ({"weights": W.to("meta")}, "weights: expected it on cpu"),
        ({"paths": PATHS.text}, "paths: expected onehop.TensorPaths, got str"),
        ({"layout": "channels"}, "layout: expected one of mul_ir, ir_mul, got 'channels'"),
        ({"out_layout": "channels"}, "out_layout: expected one of"),
        ({"graph": EDGES}, "graph: expected an onehop.Graph"),
    ],
)
def test_bad_operands(changes, message):
    arguments = {"graph": GRAPH, "x": X, "harmonics": Y, "weights": W, "paths": PATHS}
    with pytest.raises(ArgumentError, match=message):
        onehop.tensor_product(**arguments | changes)


def test_a_machine_refuses():
    with pytest.raises(BackendError, match="tensor_product is not among what pim runs"):
        onehop.tensor_product(GRAPH, X, Y, W, PATHS, backend="pim")


@pytest.mark.parametrize(("paths", "shared"), [(PATHS, False), (MIXING, False), (MIXING, True)])
def test_a_program_with_paths(paths, shared):
    """One program, which reads the paths as constants, forward and backward."""

    def layer(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return onehop.tensor_product(GRAPH, x.sin(), y, w.square(), paths).square().sum()

    torch._dynamo.reset()
    found = []
    for function in (torch.compile(layer, fullgraph=True, backend="aot_eager"), layer):
        leaves = operands(paths, shared=shared)
        loss = function(*leaves)
        found.append([loss, *torch.autograd.grad(loss, leaves)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_program_with_a_handle(compiled, shared):
    """Rows behind the last edge are ignored, and their gradients are 0."""
    more = EDGES.size(1) + 3
    handle = handle_of(GRAPH)

    def layer(handle: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        graph = GraphInProgram(number=handle, num_src=NODES, num_dst=NODES, num_edges=more)
        return onehop.tensor_product(graph, x, y, w, PATHS).square().sum()

    torch._dynamo.reset()
    function = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    x, y, w = leaves = operands(PATHS, edges=more, shared=shared)
    loss = function(handle, *leaves)
    y_of, w_of = y[:-3], w if shared else w[:-3]
    expected = onehop.tensor_product(GRAPH, x, y_of, w_of, PATHS).square().sum()
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
