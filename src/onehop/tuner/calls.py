"""Calls of the operations on random operands; the plan is an argument of the call."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.backends import Backend
from onehop.calls import (
    Aggregate,
    Attention,
    EdgeSoftmax,
    Extremum,
    ExtremumGrad,
    Rule,
    Sddmm,
    accumulator,
    attention_grad,
    on,
)
from onehop.graph import Graph

Call = Callable[[Any], Any]
"""Runs once, with the given plan."""

Maker = Callable[[Graph, int, torch.dtype], Call]
"""Draws operands for a graph, a width (of all heads together) and a dtype; returns the call."""

_SLOPE = 0.2


def duration(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes by this process's clock."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@dataclass(frozen=True, slots=True)
class Site:
    """The backend and device on which calls run.

    Attributes:
        backend: Returns a backend that follows a plan; None means the backend's default plan.
        device: Device of the operands.
        heads: H, for operations that have heads.
    """

    backend: Callable[[Any], Backend]
    device: torch.device
    heads: int = 1

    def random(self, *shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
        """Return random numbers that are the same on every device."""
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), device="cpu").to(
            self.device, dtype
        )

    def rows(self, count: int, width: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
        """Return random rows, [count, H, width / H]."""
        return self.random(count, self.heads, width // self.heads, dtype=dtype, seed=seed)


def summed(site: Site, mean: bool, transposed: bool) -> Maker:
    """Return a maker of sums or means of rows."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        x = site.random(graph.num_dst if transposed else graph.num_src, width, dtype=dtype)
        call = on(graph, Aggregate, x=x, transposed=transposed, mean=mean)
        return lambda plan: site.backend(plan).run(graph, call)

    return make


def extremum(site: Site, reduce: str, with_ties: bool) -> Maker:
    """Return a maker of max or min of rows."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        x = site.random(graph.num_src, width, dtype=dtype)
        call = on(graph, Extremum, x=x, reduce=reduce, with_ties=with_ties)
        return lambda plan: site.backend(plan).run(graph, call)[0]

    return make


def extremum_grad(site: Site, reduce: str) -> Maker:
    """Return a maker of the gradient of max or min to the rows."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        x, grad = (site.random(rows, width, dtype=dtype) for rows in (graph.num_src, graph.num_dst))
        forward = on(graph, Extremum, x=x, reduce=reduce, with_ties=True)
        out, ties = site.backend(None).run(graph, forward)
        call = ExtremumGrad(call=forward, extremum=out, ties=ties, grad=grad, wanted=[True, False])
        return lambda plan: site.backend(plan).run(graph, call)[0]

    return make


def sddmm(site: Site) -> Maker:
    """Return a maker of a dot product for every edge and head."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        dst, src = (site.rows(rows, width, dtype) for rows in (graph.num_dst, graph.num_src))
        call = on(graph, Sddmm, dst=dst, src=src)
        return lambda plan: site.backend(plan).run(graph, call)

    return make


def edge_softmax(site: Site) -> Maker:
    """Return a maker of softmax over every destination's edges; the width is the number of heads."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        scores = site.random(graph.num_edges, width, dtype=dtype)
        call = on(graph, EdgeSoftmax, scores=scores)
        return lambda plan: site.backend(plan).run(graph, call)

    return make


def attention(site: Site, rule: Rule, *, forward: bool, backward: bool) -> Maker:
    """Return a maker of attention, its gradient, or both; both sweeps of the gradient use the same plan."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        operands = _operands(site, rule, graph, width, dtype)
        grad = site.rows(graph.num_dst, width, dtype, seed=1)
        forward_results = None if forward else site.backend(None).run(graph, operands)

        def call(plan: Any) -> object:
            backend = site.backend(plan)
            results = forward_results or backend.run(graph, operands)
            if backward:
                backend.run(graph, attention_grad(operands, results, grad))
            return results[0]

        return call

    return make


def _operands(site: Site, rule: Rule, graph: Graph, width: int, dtype: torch.dtype) -> Attention:
    """Return random operands without edge features or dropout."""
    acc = accumulator(dtype)
    heads, head_width = site.heads, width // site.heads
    value = site.rows(graph.num_src, width, dtype)
    key = att = None
    factor = _SLOPE
    if rule == "gat":
        key, query = (site.random(n, heads, dtype=acc) for n in (graph.num_src, graph.num_dst))
    else:
        query = site.rows(graph.num_dst, width, dtype)
    if rule == "gatv2":
        att = site.random(heads, head_width, dtype=acc)
    if rule == "dot":
        key, factor = site.rows(graph.num_src, width, dtype, seed=2), head_width**-0.5
    return on(graph, Attention, rule=rule, value=value, key=key, query=query, att=att, factor=factor)
