import dataclasses

import pytest
import torch
from torch import Tensor

from onehop import Graph, thresholds
from onehop.ops.scaled_statistics import scaled_statistics
from onehop.reference.scaled_statistics import scaled_statistics as naive
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE, graph_of
from tests.pairs import pairwise

WIDTH, OUT, SCALES = 5, 3, 2
STATISTICS = [("mean",), ("std",), ("max", "var", "sum"), ("mean", "min", "std", "std")]
# Every degree has blocks of its own; some have; none has.
FEWEST = [1, 3, 1 << 30]


def names_of(statistics: tuple[str, ...]) -> list[str]:
    found = [n for name in statistics for n in (("mean", "squares") if name in ("var", "std") else (name,))]
    return list(dict.fromkeys(found))


def case_of(
    graph: Graph, statistics: tuple[str, ...], dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Operands, of which some rows have a variance below PyG's least one, and one below 0."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    operands = {name: numbers(graph.num_dst, WIDTH) for name in names_of(statistics)}
    if "squares" in operands:
        squares = operands["mean"].square()
        squares[::2] += numbers(*squares[::2].shape).abs()
        squares[1::4] -= 0.1
        operands["squares"] = squares
    operands["weight"] = numbers(SCALES, len(statistics) * WIDTH, OUT)
    return operands


def scales_of(graph: Graph, dtype: torch.dtype) -> Tensor:
    degrees = graph.in_degrees.to(dtype)
    return torch.stack([torch.log(degrees + 1), 1 / (degrees + 0.5)], dim=1)


def both(graph: Graph, statistics: tuple[str, ...]):
    def split(operands: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        return {name: operands[name] for name in names_of(statistics)}, operands["weight"]

    def ours(**operands: Tensor) -> Tensor:
        reduced, weight = split(operands)
        return scaled_statistics(graph, reduced, statistics, scales_of(graph, weight.dtype), weight)

    def theirs(**operands: Tensor) -> Tensor:
        reduced, weight = split(operands)
        return naive(reduced, statistics, scales_of(graph, weight.dtype), weight)

    return ours, theirs


@pytest.fixture(params=FEWEST)
def blocks(request, monkeypatch):
    bounds = dataclasses.replace(thresholds.now, block_bytes=0, block_edges=4, degree_rows=request.param)
    monkeypatch.setattr(thresholds, "now", bounds)


@pytest.mark.parametrize("statistics", STATISTICS, ids=" ".join)
@pairwise(name=HOSTILE)
def test_outputs_and_gradients(name, statistics, blocks):
    graph = graph_of(name)
    operands = case_of(graph, statistics)
    compare(*both(graph, statistics), operands, list(operands), magnitude=10.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ordinary_blocks(dtype):
    graph = graph_of("random")
    operands = case_of(graph, STATISTICS[3], dtype)
    compare(*both(graph, STATISTICS[3]), operands, list(operands), magnitude=1000.0)


@pytest.mark.parametrize("needed", [["weight"], ["max"], ["squares", "weight"], []])
def test_some_gradients(needed, blocks):
    graph = graph_of("random")
    compare(*both(graph, STATISTICS[2]), case_of(graph, STATISTICS[2]), needed, magnitude=10.0)


def test_strided_operands(blocks):
    graph, statistics = graph_of("random"), ("max", "mean")
    ours, theirs = both(graph, statistics)
    operands = {
        name: torch.stack([tensor, tensor], 2)[..., 1] for name, tensor in case_of(graph, statistics).items()
    }
    assert not any(tensor.is_contiguous() for tensor in operands.values())
    torch.testing.assert_close(ours(**operands), theirs(**operands))


def test_gradients_of_gradients(blocks):
    graph, statistics = graph_of("random"), STATISTICS[3]
    operands = {name: tensor.requires_grad_() for name, tensor in case_of(graph, statistics).items()}
    found = []
    for function in both(graph, statistics):
        grads = torch.autograd.grad(
            function(**operands).tanh().sum(), list(operands.values()), create_graph=True
        )
        second = sum(grad.square().sum() for grad in grads)
        found.append(torch.autograd.grad(second, list(operands.values())))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_what_is_kept(blocks):
    graph, kept = graph_of("random"), []
    operands = {name: tensor.requires_grad_() for name, tensor in case_of(graph, STATISTICS[3]).items()}
    ours, theirs = both(graph, STATISTICS[3])
    inputs = {tensor.data_ptr() for tensor in operands.values()}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()) or t, lambda t: t):
        ours(**operands)
    assert set(kept) <= inputs
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()) or t, lambda t: t):
        theirs(**operands)
    assert not set(kept) <= inputs


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bits_for_any_number_of_threads(threads, blocks):
    graph = graph_of("random")
    ours, _ = both(graph, STATISTICS[3])
    operands = case_of(graph, STATISTICS[3], torch.float32)
    expected = ours(**operands)
    torch.set_num_threads(threads)
    assert torch.equal(ours(**operands), expected)
