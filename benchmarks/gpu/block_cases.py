"""Calls of the kernels over blocks in the forms that their default plan gives them; see :mod:`.cases`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.attention_cases import attention_operands
from onehop.backends.triton import TritonBackend
from onehop.calls import Aggregate, attention_grad, on
from onehop.graph import Graph
from onehop.kernels.triton.blocks import DTYPES
from onehop.plans.triton_blocks import default_blocks_plan

Call = Callable[[], Any]

_NODES = 40
# More columns than the default plan lets a window have; repeated edges take columns of their own.
_HUB = 5000


def _graph(hub: int) -> Graph:
    """A ring, and a hub in both directions."""
    node = torch.arange(_NODES, device="cpu")
    to_hub = torch.stack(
        [torch.arange(hub, device="cpu") % _NODES, torch.zeros(hub, dtype=torch.long, device="cpu")]
    )
    return Graph.from_edge_index(
        torch.cat([torch.stack([node, node.roll(1)]), to_hub, to_hub.flip(0)], 1), _NODES
    )


def _sum(graph: Graph, width: int, dtype: torch.dtype, scaled: bool) -> None:
    x, numbers = (
        torch.ones(_NODES, width, dtype=dtype, device="cpu"),
        torch.ones(graph.num_edges, device="cpu"),
    )
    scale = numbers[:_NODES] if scaled else None
    weight = numbers if scaled else None
    call = on(graph, Aggregate, x=x, weight=weight, src_scale=scale, dst_scale=scale)
    TritonBackend(default_blocks_plan(width)).run(graph, call)


def _attention(graph: Graph, width: int, dtype: torch.dtype, dropout: float) -> None:
    backend = TritonBackend(default_blocks_plan(width))
    operands = attention_operands(graph, "dot", 4, width, dtype, dropout=dropout)
    results = backend.run(graph, operands)
    backend.run(graph, attention_grad(operands, results, results[0]))


def block_calls(dtype: torch.dtype) -> list[Call]:
    """Sums, plain and with all there is, and attention with and without dropout, both passes."""
    if dtype not in DTYPES:
        return []
    whole, cut = _graph(10), _graph(_HUB)
    found: list[Call] = [
        partial(_sum, cut, 64, dtype, True),
        partial(_attention, whole, 64, dtype, 0.0),
    ]
    if dtype == torch.bfloat16:
        found += [
            partial(_sum, whole, 64, dtype, False),
            partial(_sum, cut, 256, dtype, False),
            partial(_attention, cut, 64, dtype, 0.3),
            partial(_attention, cut, 128, dtype, 0.3),
        ]
    return found
