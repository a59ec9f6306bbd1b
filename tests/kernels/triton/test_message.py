"""Sweeps of messages written out in Triton, and interpreted, beside those on the CPU."""

import pytest
import torch

from onehop import Graph
from onehop.errors import BackendError
from onehop.kernels.cpu import message as cpu
from onehop.kernels.triton import availability, message
from onehop.kernels.triton.message_text import refusal, text_of
from onehop.messages import (
    End,
    Operand,
    Program,
    Step,
    backward_sweeps,
    forward_sweeps,
    ties_sweep,
)
from tests.messages.random_programs import operands_for, random_program
from tests.ops.hostile_graphs import HOSTILE

REDUCES = ("sum", "mean", "squares", "max", "min")


# Two programs, and rows of more edges than are taken at a time.
FEW = torch.stack([torch.arange(40) * 7 % 11, torch.arange(40) ** 2 % 13]), 11, 13


def graph_of(name):
    edge_index, num_src, num_dst = FEW if name == "few" else HOSTILE[name]
    return Graph.from_edge_index(edge_index, size=(num_src, num_dst))


def inputs_of(graph, program, sweep, tensors, seed=0):
    """The tensors behind a sweep's operands: those of the program, or numbers for what other sweeps make."""
    found = []
    for operand, given in zip(sweep.operands, sweep.inputs, strict=True):
        if given.at not in tensors:
            generator = torch.Generator().manual_seed(seed + given.at)
            shape = (graph.num_dst, operand.width)
            tensors[given.at] = torch.randn(shape, generator=generator, dtype=torch.float64)
        tensor = tensors[given.at]
        found.append(tensor.t() if given.turned else tensor)
    return found


def compare(name, program, reductions=("sum",), dtype=torch.float64, tolerance=1e-9):
    """Every sweep, forward and backward."""
    graph = graph_of(name)
    operands = operands_for(program, graph.num_src, graph.num_dst, graph.num_edges)
    wanted = (True,) * len(program.operands)
    sweeps = [*forward_sweeps(program, reductions), *backward_sweeps(program, wanted, reductions)]
    if set(reductions) & {"max", "min"}:
        sweeps.append(ties_sweep(program, reductions))
    ran = 0
    for sweep in sweeps:
        if refusal(sweep, dtype is torch.float64) is not None:
            continue
        inputs = [each.to(dtype) for each in inputs_of(graph, program, sweep, dict(enumerate(operands)))]
        for ours, theirs in zip(
            message.run(graph, sweep, inputs), cpu.run(graph, sweep, inputs), strict=True
        ):
            scale = float(theirs.nan_to_num().abs().max()) if theirs.numel() else 0.0
            torch.testing.assert_close(
                ours, theirs, rtol=tolerance, atol=tolerance * max(scale, 1.0), equal_nan=True
            )
        ran += 1
    return ran


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    name = ("few", "multi_edges", "one_edge", "few")[seed % 4]
    compare(name, random_program(seed, 16), (REDUCES[seed % 5], REDUCES[(seed + 2) % 5]))


def test_most_sweeps_of_random_programs_have_a_form():
    found = [
        refusal(sweep, float64=False)
        for seed in range(24)
        for sweep in forward_sweeps(random_program(seed, 16), ("sum",))
    ]
    assert found.count(None) > len(found) // 2


def gated(width):
    """sigmoid(k_i + q_j) * v_j, whose rows need not be of a power of two."""
    operands = (Operand(End.TARGET, width), Operand(End.SOURCE, width), Operand(End.SOURCE, width))
    steps = (Step("add", (0, 1), width), Step("sigmoid", (3,), width), Step("multiply", (4, 2), width))
    return Program(operands, steps, 5)


@pytest.mark.parametrize("name", ["few", "no_edges", "no_nodes", "one_edge", "self_loops"])
def test_graphs(name):
    # Forward, ties, and backward over rows of destinations and of sources.
    assert compare(name, gated(5), REDUCES) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_and_what_is_the_same_for_all_edges(dtype):
    operands = (
        Operand(End.EDGE, 17), Operand(End.MATRIX, 17 * 20), Operand(End.FIXED, 20), Operand(End.SOURCE, 20),
    )  # fmt: skip
    steps = (
        Step("product", (0, 1), 20), Step("add", (4, 2), 20), Step("tanh", (5,), 20),
        Step("multiply", (6, 3), 20),
    )  # fmt: skip
    ran = compare(
        "random", Program(operands, steps, 7), ("sum",), dtype, 1e-9 if dtype is torch.float64 else 1e-4
    )
    # Of the three, all have products of matrices, or outer ones.
    multiplies = dtype is torch.float32 or availability.installed() >= (3, 5)
    assert ran == (3 if multiplies else 0)


def test_products_in_float64_are_refused_where_triton_has_none(monkeypatch):
    program = Program(
        (Operand(End.EDGE, 16), Operand(End.MATRIX, 16 * 16)), (Step("product", (0, 1), 16),), 2
    )
    (sweep,) = forward_sweeps(program, ("sum",))
    monkeypatch.setattr(availability, "version", lambda: "3.4.0")
    assert refusal(sweep, float64=True) == "triton 3.4.0 multiplies no matrices in float64"
    assert refusal(sweep, float64=False) is None


def test_heads():
    operands = (Operand(End.SOURCE, 32), Operand(End.EDGE, 4))
    steps = (
        Step("largest", (1,), 1), Step("spread", (2,), 4), Step("subtract", (1, 3), 4), Step("exp", (4,), 4),
        Step("collect", (5,), 1), Step("spread", (6,), 4), Step("divide", (5, 7), 4),
        Step("spread", (8,), 32), Step("multiply", (0, 9), 32), Step("collect", (10,), 8, (8.0, 0.0)),
    )  # fmt: skip
    assert compare("few", Program(operands, steps, 11), ("mean",)) == 3


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of NumPy, which interprets
def test_numbers_that_are_not_finite():
    graph = graph_of("few")
    program = gated(4)
    (sweep,) = forward_sweeps(program, ("max", "min", "sum"))
    operands = operands_for(program, graph.num_src, graph.num_dst, graph.num_edges)
    operands[2][3, 1], operands[2][5, 2], operands[2][7, 2] = float("nan"), float("inf"), -float("inf")
    for ours, theirs in zip(
        message.run(graph, sweep, operands), cpu.run(graph, sweep, operands), strict=True
    ):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


REFUSED = {
    "rows of 2000 numbers": gated(2000),
    "spread has rows whose sizes are no powers": Program(
        (Operand(End.SOURCE, 3), Operand(End.SOURCE, 12)),
        (Step("spread", (0,), 12), Step("multiply", (1, 2), 12)),
        3,
    ),
    "matrix of 3 x 20 is smaller": Program(
        (Operand(End.EDGE, 3), Operand(End.MATRIX, 60)), (Step("product", (0, 1), 20),), 2
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_form_is_said(text):
    graph, program = graph_of("few"), REFUSED[text]
    (sweep,) = forward_sweeps(program, ("sum",))
    operands = operands_for(program, graph.num_src, graph.num_dst, graph.num_edges)
    with pytest.raises(BackendError, match=f"message: no kernel can be written for this sweep, .*{text}"):
        message.run(graph, sweep, operands)


def test_the_text():
    (sweep,) = forward_sweeps(gated(5), ("sum",))
    text = text_of(sweep)
    assert "v3 = v0 + v1" in text
    assert text.count("tl.load(o") == 3
    assert "@triton.jit\ndef message_kernel(" in text
