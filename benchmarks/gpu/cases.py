"""Calls of every GPU kernel in the forms that the default plans give them, for the compilers to be tried on.

The graphs are small; what is compiled depends on them through the plan alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.attention_cases import attention_calls, attention_operands
from onehop.backends.triton import TritonBackend
from onehop.calls import Aggregate, ArgExtremum, ArgExtremumGrad, Extremum, ExtremumGrad, Sddmm, on
from onehop.graph import Graph

Call = Callable[[], Any]

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Those of which more forms are compiled.
_MAIN = (torch.float32, torch.bfloat16)
_HEADS = 4
_NODES = 40
# Longer than default plans let a row be, so that it is cut, in both directions.
_HUB = 600
# So long that its pieces are merged in two levels.
DEEP_HUB = 20_000


def graph_of_degree(degree: int, hub_edges: int = _HUB) -> Graph:
    """A graph of at least that mean degree, but for a hub of so many edges."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, _NODES, (2, _NODES * degree), generator=generator, device="cpu")
    hub = torch.stack(
        [
            torch.randint(0, _NODES, (hub_edges,), generator=generator, device="cpu"),
            torch.zeros(hub_edges, dtype=torch.long, device="cpu"),
        ]
    )
    return Graph.from_edge_index(torch.cat([edges, hub, hub.flip(0)], 1), _NODES)


def aggregate_calls(graph: Graph, width: int, dtype: torch.dtype) -> list[Call]:
    """Sums, plain and with all there is; max; and their gradients."""
    run = TritonBackend()
    x = torch.ones(graph.num_src, width, dtype=dtype, device="cpu")
    acc = torch.float64 if dtype == torch.float64 else torch.float32
    weight, scale = (
        torch.ones(graph.num_edges, dtype=acc, device="cpu"),
        torch.ones(_NODES, dtype=acc, device="cpu"),
    )
    share = torch.ones(graph.num_dst, width, dtype=acc, device="cpu")
    heads = x.view(_NODES, _HEADS, -1)
    extremum = on(graph, Extremum, x=x, reduce="max", weight=weight, with_ties=True)
    calls = (
        on(
            graph,
            Aggregate,
            x=x,
            weight=weight,
            src_scale=scale,
            dst_scale=scale,
            transposed=True,
            widen=True,
        ),
        extremum,
        ExtremumGrad(call=extremum, extremum=x, ties=share, grad=share, wanted=[True, True]),
        on(graph, Sddmm, dst=heads, src=heads, widen=True),
    )
    return [
        *sum_calls(graph, width, dtype),
        *(partial(run.run, graph, call) for call in calls),
        *winner_calls(graph, width, dtype),
    ]


def winner_calls(graph: Graph, width: int, dtype: torch.dtype) -> list[Call]:
    """Max whose gradient goes to one edge, with a weight for every head; there are none of 16 bits."""
    if dtype.itemsize < 4:
        return []
    x = torch.ones(graph.num_src, width, dtype=dtype, device="cpu")
    weight = torch.ones(graph.num_edges, _HEADS, dtype=dtype, device="cpu")
    call = on(graph, ArgExtremum, x=x, reduce="max", weight=weight)
    winner = torch.zeros(graph.num_dst, width, dtype=torch.int32, device="cpu")
    grad = ArgExtremumGrad(call=call, winner=winner, grad=x, wanted=[True, True])
    run = TritonBackend().run
    return [partial(run, graph, each) for each in (call, grad, on(graph, ArgExtremum, x=x, reduce="max"))]


def sum_calls(graph: Graph, width: int, dtype: torch.dtype) -> list[Call]:
    """The plain sum."""
    x = torch.ones(graph.num_src, width, dtype=dtype, device="cpu")
    return [partial(TritonBackend().run, graph, on(graph, Aggregate, x=x))]


def deep_calls(dtype: torch.dtype) -> list[Call]:
    """Attention, sums and max where a row has so many pieces that they are merged in levels."""
    graph, run, width = graph_of_degree(8, DEEP_HUB), TritonBackend().run, 256
    found: list[Any] = [attention_operands(graph, "gatv2", _HEADS, width // _HEADS, dtype)]
    if dtype in _MAIN:
        x = torch.ones(graph.num_src, width, dtype=dtype, device="cpu")
        found += [on(graph, Aggregate, x=x), on(graph, Extremum, x=x, reduce="max", with_ties=True)]
        if dtype.itemsize >= 4:
            found.append(on(graph, ArgExtremum, x=x, reduce="max"))
    return [partial(run, graph, call) for call in found]


def calls(dtype: torch.dtype) -> list[Call]:
    """Everything for a dtype: all kernels at width 64, sums at other widths and where rows are long."""
    sparse, dense = graph_of_degree(8), graph_of_degree(80)
    found = aggregate_calls(sparse, 64, dtype)
    if dtype in _MAIN:
        found += (
            aggregate_calls(dense, 256, dtype) + sum_calls(sparse, 33, dtype) + sum_calls(sparse, 32, dtype)
        )
    return found + deep_calls(dtype) + attention_calls(dtype)
