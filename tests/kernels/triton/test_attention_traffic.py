"""What the attention kernels read and write is what the formulas say, within five percent."""

import pytest
import torch

from benchmarks.gpu.cases import attention_operands
from benchmarks.gpu.floors import AttentionShape, attention_floor, attention_grad_floor
from onehop import Graph
from onehop.backends.triton import TritonBackend
from onehop.calls import attention_grad
from onehop.plans import TritonPlan
from tests.kernels.triton.traffic import counted

NODES, EDGES, HUB = 16, 480, 120
# Rows share programs, which is what an interpreter is fastest with; what is read does not depend on it.
PLAN = TritonPlan(split_edges=64, short_edges=64, rows_per_program=32, block_features=256, num_warps=1)


@pytest.fixture(scope="module")
def graph():
    """Thirty edges a node, and a hub that is cut, in either direction."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES - 2 * HUB), generator=generator)
    hub = torch.stack([torch.arange(HUB) % NODES, torch.full((HUB,), 5)])
    return Graph.from_edge_index(torch.cat([edges, hub, hub.flip(0)], 1), NODES)


@pytest.mark.parametrize(
    ("rule", "heads", "width", "dtype"),
    [
        ("gat", 4, 64, torch.float32),
        ("gatv2", 4, 64, torch.float32),
        ("gatv2", 2, 32, torch.bfloat16),
        ("dot", 4, 64, torch.float32),
        ("dot", 1, 100, torch.float16),
    ],
)
def test_traffic(graph, rule, heads, width, dtype):
    operands = attention_operands(graph, rule, heads, width, dtype)
    shape = AttentionShape(rule, NODES, NODES, EDGES, heads, width, dtype.itemsize)
    backend = TritonBackend(PLAN)
    with counted() as forward:
        results = backend.run(graph, operands)
    assert forward.bytes == pytest.approx(attention_floor(shape).no_reuse, rel=0.05)
    with counted() as backward:
        backend.run(graph, attention_grad(operands, results, results[0]))
    assert backward.bytes == pytest.approx(attention_grad_floor(shape).no_reuse, rel=0.05)


def test_gatv2_gathers_three_rows_an_edge_backward():
    """Twice the edges between the same nodes cost three rows, two indices and two statistics each."""
    grown = [AttentionShape("gatv2", 10, 10, edges, 4, 64, 4) for edges in (100, 200)]
    less, more = (attention_grad_floor(shape).no_reuse for shape in grown)
    assert more - less == 100 * (2 * 4 + 3 * 256 * 4 + 8 * 4)
