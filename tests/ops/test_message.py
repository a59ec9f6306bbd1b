import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from onehop import Graph, reference
from onehop.messages import End, Operand, Program, Step, backward_sweeps
from onehop.messages.program import OPERATIONS
from onehop.ops.message import fits, reduce_messages
from tests.messages.random_programs import operands_for, random_program
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE, graph_of
from tests.pairs import pairwise

WIDTHS = [1, 3, 4, 16, 17, 48, 64, 90]
REDUCES = ["sum", "mean", "squares", "max", "min", "edges"]
UNARY = [o for o in OPERATIONS[OPERATIONS.index("shift") : -1] if not o.endswith("_grad")]
NUMBERS = {
    "shift": (0.3, 0.0), "scale": (-1.7, 0.0), "invert": (2.0, 0.0), "leaky_relu": (0.2, 0.0),
    "softplus": (1.5, 20.0), "elu": (0.7, 0.0), "clamp": (-0.5, 0.8),
}  # fmt: skip
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-30, -1e-30, 50.0, -50.0, 1e30, -1e30]


def named(name):
    return HOSTILE[name][0], graph_of(name)


def flat(results):
    return torch.cat([each.flatten() for each in results])


def check(name, program, reductions=("sum",), dtype=torch.float64, seed=0):
    edge_index, graph = named(name)
    operands = operands_for(program, graph.num_src, graph.num_dst, graph.num_edges, seed, dtype)
    sums = sum(step.operation == "row_sum" for step in program.steps)
    names = [f"operand {at} ({o.end.value})" for at, o in enumerate(program.operands)]
    compare(
        lambda **kw: flat(reduce_messages(graph, program, list(kw.values()), reductions)),
        lambda **kw: flat(
            reference.message(edge_index, graph.num_dst, program, list(kw.values()), reductions)
        ),
        dict(zip(names, operands, strict=True)),
        names,
        # Of sums over the edges of a hub, of products of a few numbers each; some of these are such sums.
        magnitude=100.0 * max(graph.num_edges, 1) ** (1 + sums),
    )


@pairwise(
    name=["random", "one_hub", "bipartite_wide", "multi_edges", "no_edges"],
    dtype=[torch.float32, torch.float64],
    reductions=[("sum", "edges"), ("edges",), ("edges", "mean", "max")],
    edges=[True, False],
)
def test_sources_get_what_was_written_for_edges(name, dtype, reductions, edges):
    # The gradients of source, destination and edge are one value: it is written once, and added up from
    # there. Where the edge has none, it is written for the source.
    ends = (End.SOURCE, End.TARGET, End.EDGE)
    program = Program(
        tuple(Operand(end, 48) for end in ends),
        (Step("add", (0, 1), 48), Step("add", (3, 2), 48), Step("tanh", (4,), 48)),
        5,
    )
    *_, main, last = backward_sweeps(program, (True, True, edges), reductions)
    assert [r.sink.name for r in main.results].count("EDGE") == 1
    assert not last.steps
    assert last.transposed
    check(name, program, reductions, dtype)


def unary(name, width=16):
    return Program(
        (Operand(End.SOURCE, width),), (Step(name, (0,), width, NUMBERS.get(name, (0.0, 0.0))),), 1
    )


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(WIDTHS),
    st.sampled_from(sorted(HOSTILE)),
    st.lists(st.sampled_from(REDUCES), min_size=1, max_size=5),
)
def test_random_programs(seed, width, name, reductions):
    program = random_program(seed, width)
    assert fits(program, tuple(reductions))
    check(name, program, tuple(reductions), seed=seed)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", range(5))
def test_single_precision(seed, width):
    check("random", random_program(seed, width), dtype=torch.float32)


@pytest.mark.parametrize(("block", "width"), [(0, 3), (1, 1), (5, 10), (17, 34)])
@pairwise(
    dtype=[torch.float32, torch.float64],
    operation=["collect", "largest"],
)
def test_folded_rows(isa, dtype, operation, block, width):
    edge_index, graph = named("random")
    program = Program(
        (Operand(End.SOURCE, 4 * width),), (Step(operation, (0,), width, (float(block), 0.0)),), 1
    )
    x = torch.randn(graph.num_src, 4 * width, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[1, 0], x[2, -1], x[3], x[4, width] = math.nan, math.inf, -math.inf, -math.inf
    (ours,) = reduce_messages(graph, program, [x], ("max",))
    (exact,) = reference.message(edge_index, graph.num_dst, program, [x], ("max",))
    torch.testing.assert_close(ours, exact, equal_nan=True)


@pairwise(name=UNARY, dtype=[torch.float32, torch.float64])
def test_special_numbers(isa, name, dtype):
    # One edge each, so that nothing is added up: NaN, infinities and accuracy are those of torch.
    few = [s * 2.0**e for s in (1, -1) for e in range(-20, 7)] + [0.3, -0.3, 2.5, -2.5, 20.1, 13.4, 13.3]
    x = torch.tensor([SPECIAL + few], dtype=torch.float64).to(dtype)
    x = torch.nn.functional.pad(x, (0, -x.size(1) % 16), value=0.7)
    program = unary(name, x.size(1))
    graph = Graph.from_edge_index(torch.tensor([[0], [0]]))
    ours = x.clone().requires_grad_()
    out = reduce_messages(graph, program, [ours], ("sum",))[0]
    (grad,) = torch.autograd.grad(out, ours, torch.full_like(out, 0.5))
    theirs = x.clone().requires_grad_()
    exact = reference.message(torch.zeros(2, 1), 1, program, [theirs], ("sum",))[0]
    (exact_grad,) = torch.autograd.grad(exact, theirs, torch.full_like(exact, 0.5))
    tolerance = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 1e-37}
    torch.testing.assert_close(out.detach(), exact.detach(), equal_nan=True, **tolerance)
    # torch's own gradients cancel: 1 - tanh squared, for one.
    torch.testing.assert_close(
        grad, exact_grad, equal_nan=True, rtol=tolerance["rtol"], atol=2 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_error_function_over_its_range(isa, dtype):
    # Both of its formulas, where they meet, and where the result is 1.
    x = torch.linspace(-7, 7, 16 * 4000, dtype=dtype).view(1, -1)
    graph = Graph.from_edge_index(torch.tensor([[0], [0]]))
    (out,) = reduce_messages(graph, unary("erf", x.size(1)), [x], ("sum",))
    torch.testing.assert_close(
        out.double(), torch.special.erf(x.double()), rtol=4 * torch.finfo(dtype).eps, atol=0
    )


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("numbers", ["ties", "zeros", "nan", "infinities"])
# A hub is cut.
@pytest.mark.parametrize("name", ["random", "one_hub"])
def test_gradients_of_extrema(name, numbers, reduce):
    # Messages that tie, with each other and with the zeros that torch starts from, and NaN.
    edge_index, graph = named(name)
    program = Program(
        (Operand(End.SOURCE, 5), Operand(End.TARGET, 5)),
        (Step("add", (0, 1), 5), Step("relu", (2,), 5)),
        3 if numbers == "zeros" else 2,
    )
    operands = [t.round() for t in operands_for(program, graph.num_src, graph.num_dst, graph.num_edges)]
    if numbers in ("nan", "infinities"):
        operands[0][7, 1:3] = math.nan if numbers == "nan" else math.inf
    results = []
    for function in (
        lambda *t: reduce_messages(graph, program, t, (reduce,))[0],
        lambda *t: reference.message(edge_index, graph.num_dst, program, t, (reduce,))[0],
    ):
        leaves = [t.clone().requires_grad_() for t in operands]
        out = function(*leaves)
        grad = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        results.append([out.detach(), *torch.autograd.grad(out, leaves, grad)])
    for ours, exact in zip(*results, strict=True):
        torch.testing.assert_close(ours, exact, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 6, 16, 23, 40])
def test_both_sweeps_find_the_same_extrema(isa, width, dtype):
    # Edges are at other places of their tiles in the two sweeps, and their messages have the same bits.
    graph = graph_of("random")
    program = Program(
        (
            Operand(End.SOURCE, width),
            Operand(End.TARGET, width),
            Operand(End.EDGE, 7),
            Operand(End.MATRIX, 7 * width),
        ),
        (
            Step("product", (2, 3), width),
            Step("multiply", (4, 1), width),
            Step("softplus", (5,), width, (1.0, 20.0)),
            Step("collect", (6,), 1),
            Step("spread", (7,), width),
            Step("add", (8, 6), width),
            Step("add", (9, 0), width),
        ),
        10,
    )
    operands = operands_for(program, graph.num_src, graph.num_dst, graph.num_edges, dtype=dtype)
    x = operands[0].requires_grad_()
    out = reduce_messages(graph, program, operands, ("max",))[0]
    (grad,) = torch.autograd.grad(out, x, torch.ones_like(out))
    # Each row with edges gives 1 to its sources, in parts.
    rows = int((graph.in_degrees > 0).sum())
    torch.testing.assert_close(grad.sum(0), torch.full((width,), float(rows), dtype=dtype))


def test_gradients_of_gradients():
    graph = graph_of("random")
    program = random_program(3, 4)
    operands = [
        t.requires_grad_() for t in operands_for(program, graph.num_src, graph.num_dst, graph.num_edges)
    ]
    for reduce in REDUCES:
        assert torch.autograd.gradgradcheck(
            lambda *t, reduce=reduce: reduce_messages(graph, program, t, (reduce,))[0],
            operands,
            fast_mode=True,
        )


def test_only_what_is_wanted():
    graph = graph_of("random")
    program = Program((Operand(End.SOURCE, 3), Operand(End.TARGET, 3)), (Step("multiply", (0, 1), 3),), 2)
    a, b = operands_for(program, graph.num_src, graph.num_dst, graph.num_edges)
    out = reduce_messages(graph, program, [a, b.requires_grad_()], ("sum",))[0]
    out.sum().backward()
    assert b.grad is not None
    assert a.grad is None
    (sweep,) = backward_sweeps(program, (False, True), ("sum",))
    assert not sweep.transposed
    assert not reduce_messages(graph, program, [a, b.detach()], ("sum",))[0].requires_grad


def test_too_long_a_program():
    steps = tuple(Step("tanh", (at,), 4) for at in range(300))
    assert not fits(Program((Operand(End.SOURCE, 4),), steps, 300), ("sum",))


def test_the_program_in_words():
    program = Program(
        (Operand(End.SOURCE, 4), Operand(End.EDGE, 2), Operand(End.MATRIX, 8)),
        (Step("product", (1, 2), 4), Step("add", (0, 3), 4), Step("leaky_relu", (4,), 4, (0.2, 0.0))),
        5,
    )
    assert program.text(["x_j", "edge_attr", "W"]).splitlines() == [
        "x_j: rows of 4",
        "edge_attr: rows of 2",
        "W: a matrix of 8",
        "v0 = product(edge_attr, W): rows of 4",
        "v1 = add(x_j, v0): rows of 4",
        "v2 = leaky_relu(v1, 0.2): rows of 4",
        "message: v2",
    ]
