"""What kernels over blocks read and write is what the formulas say, within five percent."""

import pytest
import torch

from benchmarks.gpu.attention_cases import attention_operands
from benchmarks.gpu.attention_floors import AttentionShape, attention_floor
from benchmarks.gpu.block_floors import (
    block_attention_floor,
    block_attention_grad_floor,
    block_sum_floor,
)
from benchmarks.gpu.floors import Shape, sum_floor
from onehop import Graph
from onehop.backends.triton import TritonBackend
from onehop.calls import Aggregate, attention_grad, on
from onehop.kernels.triton.blocks import blocks_of
from onehop.plans.triton_blocks import default_blocks_plan
from tests.kernels.triton.traffic import counted

NUM_SRC, NUM_DST, EDGES = 200, 96, 3000


@pytest.fixture(scope="module")
def graph():
    """About 30 edges a destination."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(0, NUM_SRC, (EDGES,), generator=generator)
    return Graph.from_edge_index(
        torch.stack([source, torch.arange(EDGES) % NUM_DST]), size=(NUM_SRC, NUM_DST)
    )


def columns_of(graph, transposed):
    return blocks_of(graph, transposed, torch.device("cpu"), 4096).columns.source.numel()


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_sum(graph, weighted, transposed):
    rows, cols = (NUM_SRC, NUM_DST) if transposed else (NUM_DST, NUM_SRC)
    x = torch.ones(cols, 64, dtype=torch.bfloat16)
    weight = torch.ones(EDGES) if weighted else None
    with counted() as traffic:
        call = on(graph, Aggregate, x=x, weight=weight, transposed=transposed)
        TritonBackend(default_blocks_plan(64)).run(graph, call)
    shape = Shape(rows, cols, EDGES, 64, 2, per_edge=8 if weighted else 0)
    floor = block_sum_floor(shape, columns_of(graph, transposed))
    assert traffic.bytes == pytest.approx(floor.no_reuse, rel=0.05)
    assert floor.compulsory < floor.no_reuse < sum_floor(shape).no_reuse


@pytest.mark.parametrize(("heads", "width", "dropout"), [(2, 32, 0.0), (1, 64, 0.3)])
def test_attention(graph, heads, width, dropout):
    operands = attention_operands(graph, "dot", heads, width, torch.float16, dropout=dropout)
    shape = AttentionShape("dot", NUM_SRC, NUM_DST, EDGES, heads, width, 2)
    columns, turned = (columns_of(graph, transposed) for transposed in (False, True))
    backend = TritonBackend(default_blocks_plan(width))
    with counted() as forward:
        results = backend.run(graph, operands)
    floor = block_attention_floor(shape, columns, dropout > 0)
    assert forward.bytes == pytest.approx(floor.no_reuse, rel=0.05)
    assert floor.compulsory < floor.no_reuse < attention_floor(shape).no_reuse
    with counted() as backward:
        backend.run(graph, attention_grad(operands, results, results[0]))
    floor = block_attention_grad_floor(shape, columns, turned, dropout > 0)
    assert backward.bytes == pytest.approx(floor.no_reuse, rel=0.05)
