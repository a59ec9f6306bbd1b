"""Calls of the operations on random operands, with the plan given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.backends import Backend
from onehop.graph import Graph
from onehop.kernels.attention_operands import AttentionOperands, Rule

Call = Callable[[Any], Any]
"""Runs once with the plan it is given."""

Maker = Callable[[Graph, int, torch.dtype], Call]
"""Draws operands for a graph, a width (of all heads together) and a dtype; returns the call."""

_SLOPE = 0.2


@dataclass(frozen=True, slots=True)
class Site:
    """A place for calls to run.

    Attributes:
        backend: Makes a backend that follows a plan; its default for None.
        device: Device of the operands.
        heads: H, for operators with heads.
    """

    backend: Callable[[Any], Backend]
    device: torch.device
    heads: int = 1

    def random(self, *shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
        """Random numbers that are the same on every device."""
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), device="cpu").to(
            self.device, dtype
        )

    def rows(self, count: int, width: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
        """Draws rows, [count, H, width / H]."""
        return self.random(count, self.heads, width // self.heads, dtype=dtype, seed=seed)


def summed(site: Site, mean: bool, transposed: bool) -> Maker:
    """A sum or mean of rows."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        x = site.random(graph.num_dst if transposed else graph.num_src, width, dtype=dtype)
        return lambda plan: site.backend(plan).aggregate(graph, transposed, x, None, None, None, mean, False)

    return make


def extremum(site: Site, reduce: str, with_ties: bool) -> Maker:
    """Max or min of rows."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        x = site.random(graph.num_src, width, dtype=dtype)
        return lambda plan: site.backend(plan).extremum(graph, x, None, reduce, False, with_ties)[0]

    return make


def extremum_grad(site: Site, reduce: str) -> Maker:
    """The gradient of max or min to the rows."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        x, grad = (site.random(rows, width, dtype=dtype) for rows in (graph.num_src, graph.num_dst))
        out, ties = site.backend(None).extremum(graph, x, None, reduce, False, True)

        def call(plan: Any) -> Tensor:
            backend = site.backend(plan)
            return backend.extremum_grad(graph, grad, x, None, out, ties, True, False)[0]

        return call

    return make


def sddmm(site: Site) -> Maker:
    """A dot product for every edge and head."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        dst, src = (site.rows(rows, width, dtype) for rows in (graph.num_dst, graph.num_src))
        return lambda plan: site.backend(plan).sddmm(graph, dst, src, False, False)

    return make


def edge_softmax(site: Site) -> Maker:
    """Softmax over every destination's edges; the width is the number of heads."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        scores = site.random(graph.num_edges, width, dtype=dtype)
        return lambda plan: site.backend(plan).edge_softmax(graph, scores)

    return make


def attention(site: Site, rule: Rule, *, forward: bool, backward: bool) -> Maker:
    """Attention, its gradient, or both in one call; both sweeps of the gradient use the same plan."""

    def make(graph: Graph, width: int, dtype: torch.dtype) -> Call:
        operands, wanted = _operands(site, rule, graph, width, dtype)
        grad = site.rows(graph.num_dst, width, dtype, seed=1)
        kept = None if forward else site.backend(None).attend(graph, operands, False)[:2]

        def call(plan: Any) -> object:
            backend = site.backend(plan)
            out, softmax = kept or backend.attend(graph, operands, False)[:2]
            if backward:
                backend.attend_grad(graph, operands, out, softmax, None, grad, None, wanted)
            return out

        return call

    return make


def _operands(
    site: Site, rule: Rule, graph: Graph, width: int, dtype: torch.dtype
) -> tuple[AttentionOperands, tuple[bool, ...]]:
    """Operands without edge features or dropout, and the gradients to compute."""
    acc = torch.float64 if dtype == torch.float64 else torch.float32
    heads, head_width = site.heads, width // site.heads
    value = site.rows(graph.num_src, width, dtype)
    key = query = att = None
    factor = _SLOPE
    if rule == "gat":
        key, query = (site.random(n, heads, dtype=acc) for n in (graph.num_src, graph.num_dst))
    else:
        query = site.rows(graph.num_dst, width, dtype)
    if rule == "gatv2":
        att = site.random(heads, head_width, dtype=acc)
    if rule == "dot":
        key, factor = site.rows(graph.num_src, width, dtype, seed=2), head_width**-0.5
    operands = AttentionOperands(rule, value, key, query, att, None, None, None, factor, dropout=0.0, seed=0)
    return operands, (True, key is not None, True, att is not None, False, False)
