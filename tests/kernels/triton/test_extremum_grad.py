"""The gradient of max and min by saved positions: ties, NaN, gradients that are not finite, long rows."""

import pytest
import torch
import triton.language as tl

import onehop
from onehop import Graph, reference
from onehop.backends.triton import TritonBackend
from onehop.calls import Extremum, on
from onehop.kernels.triton import extremum, extremum_grad, positions
from tests.kernels.triton.conftest import PLANS, SMALL
from tests.kernels.triton.small_graphs import GRAPHS
from tests.kernels.triton.traffic import counted
from tests.ops.comparison import compare

# NumPy, which interprets the kernels, warns of what a GPU does silently.
pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning"),
]
NAN, INF = float("nan"), float("inf")
REDUCE = pytest.mark.parametrize("reduce", ["max", "min"])


def hub_and_more():
    """A hub of 20 edges, which is cut, short rows and repeated edges, in an order that is no CSR's."""
    generator = torch.Generator().manual_seed(4)
    hub = torch.stack([torch.arange(20) % 9, torch.full((20,), 3)])
    rest = torch.randint(0, 9, (2, 15), generator=generator)
    edges = torch.cat([hub, rest, rest[:, :5]], 1)
    return edges[:, torch.randperm(edges.size(1), generator=generator)]


EDGES = hub_and_more()


def gradient(run, x, grad):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(run(x), x, grad)[0]


def both(x, grad, reduce, edges=EDGES):
    """Ours, and the float64 twin's."""
    graph = Graph.from_edge_index(edges, x.size(0))
    ours = gradient(lambda x: onehop.aggregate(graph, x, reduce=reduce, backend="triton"), x, grad)
    exact = gradient(
        lambda x: reference.aggregate(edges, x, x.size(0), reduce=reduce), x.double(), grad.double()
    )
    return ours, exact


def few_values(width=5):
    """Features of which many tie, zeros among them, some of either sign."""
    generator = torch.Generator().manual_seed(5)
    return torch.randint(-1, 2, (9, width), generator=generator).float()


def grads(width=5):
    return torch.randn(9, width, generator=torch.Generator().manual_seed(6))


@REDUCE
@pytest.mark.parametrize("mapping", PLANS)
def test_ties_in_lanes_pieces_and_rows(mapping, reduce, use):
    use(PLANS[mapping])
    ours, exact = both(few_values(), grads(), reduce)
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-6)


@REDUCE
@pytest.mark.parametrize("place", [0, 5, 9, 19])
def test_one_winner_wherever_it_is(place, reduce):
    """Of the hub's 20 edges, in its first and last piece and between."""
    edges = torch.stack([torch.arange(20), torch.zeros(20, dtype=torch.long)])
    x = torch.zeros(20, 3)
    x[place] = 2.0 if reduce == "max" else -2.0
    grad = torch.zeros(20, 3)
    grad[0] = torch.tensor([1.0, 2.0, 3.0])
    ours, exact = both(x, grad, reduce, edges)
    assert torch.equal(ours.double(), exact)
    assert torch.equal(ours[place], grad[0])
    assert ours.count_nonzero() == 3


@REDUCE
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_numbers_that_are_not_finite(bad, reduce):
    x = few_values()
    x[2, 1] = x[5, 3] = x[6, 3] = bad
    ours, exact = both(x, grads(), reduce)
    torch.testing.assert_close(ours.double(), exact, equal_nan=True, rtol=1e-5, atol=1e-6)
    if bad != bad:
        assert exact.isnan().any()
        assert not exact.isnan().all()


@REDUCE
@pytest.mark.parametrize("bad", [NAN, INF])
def test_gradients_that_are_not_finite_spread_as_torchs_do(bad, reduce):
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(8))
    grad = grads()
    grad[3, 1] = grad[0, 2] = bad
    ours, exact = both(x, grad, reduce)
    assert torch.equal(ours.isnan(), exact.isnan())
    assert torch.equal(ours.isinf(), exact.isinf())
    torch.testing.assert_close(ours.double(), exact, equal_nan=True, rtol=1e-5, atol=1e-6)


@REDUCE
@pytest.mark.parametrize("multiply", ["mul", "add"])
def test_weights_that_are_not_finite(multiply, reduce):
    weight = torch.randn(EDGES.size(1), generator=torch.Generator().manual_seed(7))
    weight[::9] = INF
    x, grad = torch.randn(9, 3, generator=torch.Generator().manual_seed(8)), grads(3)
    graph = Graph.from_edge_index(EDGES, 9)
    ours = gradient(
        lambda x: onehop.aggregate(graph, x, weight, reduce, multiply=multiply, backend="triton"), x, grad
    )
    exact = gradient(
        lambda x: reference.aggregate(EDGES, x, 9, weight.double(), reduce, multiply=multiply),
        x.double(),
        grad.double(),
    )
    torch.testing.assert_close(ours.double(), exact, equal_nan=True, rtol=1e-5, atol=1e-6)


@REDUCE
@pytest.mark.parametrize("limit", ["LAST_MARK", "LAST_POSITION"])
def test_edges_too_far_back_for_a_mark(limit, reduce, monkeypatch):
    """Single winners that no mark reaches are found by comparison."""
    module = extremum if limit == "LAST_POSITION" else extremum_grad
    monkeypatch.setattr(module, limit, tl.constexpr(7))
    monkeypatch.setattr(positions, "_LAST_MARK", 7)
    inputs = {"x": torch.randn(40, 8, generator=torch.Generator().manual_seed(9))}
    edges = torch.stack([torch.arange(40), torch.zeros(40, dtype=torch.long)])
    graph = Graph.from_edge_index(edges, size=(40, 1))
    _, saved = TritonBackend(SMALL).run(
        graph, on(graph, Extremum, x=inputs["x"], reduce=reduce, with_ties=True)
    )
    assert (saved == 1).any() == (limit == "LAST_POSITION")
    assert limit == "LAST_POSITION" or (saved < -7).any()
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, backend="triton", **kw),
        lambda **kw: reference.aggregate(edges, num_dst=1, reduce=reduce, **kw),
        inputs,
        ["x"],
    )


@REDUCE
@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_saved(name, reduce):
    """-1 - p of a single edge, at position p of its row; else how many tie; 0 for NaN and for empty rows."""
    edges, num_src, num_dst = GRAPHS[name]
    graph = Graph.from_edge_index(edges, size=(num_src, num_dst))
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-3, 4, (num_src, 4), generator=generator).double()
    x[::5, 0] = NAN
    _, saved = TritonBackend(SMALL).run(graph, on(graph, Extremum, x=x, reduce=reduce, with_ties=True))
    rowptr, col = graph.csr.rowptr, graph.csr.col
    for row in range(num_dst):
        messages = x[col[rowptr[row] : rowptr[row + 1]].long()]
        for column in range(4 if messages.size(0) else 0):
            values = messages[:, column]
            (hits,) = torch.nonzero(values == getattr(values, reduce)(), as_tuple=True)
            expected = -1 - int(hits[0]) if hits.numel() == 1 else hits.numel()
            assert saved[row, column] == expected, (row, column)
        if not messages.size(0):
            assert not saved[row].any()


def test_edge_marks_say_where_an_edge_is_in_its_row():
    graph = Graph.from_edge_index(EDGES, 9)
    marks = positions.edge_marks(graph, torch.device("cpu"))
    seen = {}
    turned = graph.transposed_csr
    for source in range(9):
        for at in range(int(turned.rowptr[source]), int(turned.rowptr[source + 1])):
            target, place = int(turned.col[at]), int(marks[at]) - 1
            assert graph.csr.col[graph.csr.rowptr[target] + place] == source
            seen.setdefault(target, set()).add(place)
    assert all(places == set(range(len(places))) for places in seen.values())
    assert sum(map(len, seen.values())) == EDGES.size(1)


def test_without_ties_shares_and_extrema_are_read_for_winners_alone():
    """Of an edge, the mark of every column is read; four bytes a column more only where it is the winner."""
    edges = torch.stack([torch.arange(64) % 16, torch.arange(64) // 16])
    graph = Graph.from_edge_index(edges, size=(16, 4))
    x = torch.arange(16 * 16, dtype=torch.float32).view(16, 16)
    grad = torch.ones(4, 16)

    def bytes_of(x):
        x = x.clone().requires_grad_()
        out = onehop.aggregate(graph, x, reduce="max", backend="triton")
        with counted() as traffic:
            torch.autograd.grad(out, x, grad)
        return traffic.bytes

    apart, tied = bytes_of(x), bytes_of(torch.ones_like(x))
    # Where all tie, shares and extrema are read for every edge.
    assert tied - apart == (64 - 4) * 16 * 4 + 64 * 16 * 4
