"""The C++ kernels on the processor."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from onehop import native
from onehop.graph import Graph
from onehop.kernels import cpu as kernels
from onehop.kernels.attention_operands import AttentionGrads, AttentionOperands
from onehop.plans import CpuPlan
from onehop.processor import last_level_cache_bytes

# Below this many multiplications the work stays on the calling thread. A cautious choice: at five times as
# many (10,556 edges, width 16) two threads already took three quarters of the time of one.
_SERIAL_WORK = 1 << 15
_LEAST_EDGES, _MOST_EDGES = 1024, 8192
# Pieces per graph that balance well without being so many that handing them out shows.
_PIECES = 128


# Short rows are read sooner than they arrive when asked for late; many long ones would push each other out.
_PREFETCH_SHORT, _PREFETCH_LONG = 32, 16
_SHORT_ROW_BYTES = 256

# Tiles pay where every source row is read many times (at 190 edges a source and width 256 about 1.4 times
# faster on a busy machine, at 14 no gain, at 4 a loss), while a row's part is a few cache lines long.
_TILED_DEGREE = 32
_LEAST_TILE_BYTES = 128
_CACHE_SHARE = 0.75


def _column_tile(sources: int, edges: int, width: int, itemsize: int) -> int:
    """The widest tile with which all sources fit into the last-level cache; 0 where tiling would not pay."""
    cache = last_level_cache_bytes()
    if sources * width * itemsize <= cache or edges < _TILED_DEGREE * sources:
        return 0
    line = 64 // itemsize
    widest = int(_CACHE_SHARE * cache) // (sources * itemsize) // line * line
    if widest * itemsize < _LEAST_TILE_BYTES:
        return 0
    passes = -(-width // widest)
    return -(-width // (passes * line)) * line


@lru_cache(maxsize=4096)
def _default_plan(sources: int, rows: int, edges: int, width: int, itemsize: int) -> CpuPlan:
    row_bytes = width * itemsize
    return CpuPlan(
        edges_per_item=min(max(edges // _PIECES, _LEAST_EDGES), _MOST_EDGES),
        prefetch=_PREFETCH_SHORT if row_bytes <= _SHORT_ROW_BYTES else _PREFETCH_LONG,
        column_tile=_column_tile(sources, edges, width, itemsize),
        # A result that the caches cannot hold need not go through them.
        nontemporal=rows * row_bytes > last_level_cache_bytes() > 0,
        threads=1 if edges * width < _SERIAL_WORK else 0,
    )


class CpuBackend:
    """Register-blocked loops over compressed sparse rows, for the best instruction set there is."""

    name = "cpu"

    def describe(self) -> str:
        """Instruction set and threads."""
        available = ", ".join(native.extension.available_isas())
        pool = (
            "torch's OpenMP threads"
            if native.extension.openmp_bound()
            else "one thread (torch's OpenMP not found)"
        )
        return (
            f"C++ kernels, {native.extension.selected_isa()} (of {available}), {native.threads()} of {pool}"
        )

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """It runs on CPU tensors of the four float types."""
        if device.type != "cpu":
            return f"runs on CPU tensors, not on {device.type}"
        if dtype not in native.DTYPE_CODES:
            return f"computes in float32, float64, bfloat16 and float16, not in {dtype}"
        return None

    def prepare(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> CpuPlan:
        """Pieces small enough to balance, one thread for tiny work, tiles where they make x fit the cache."""
        sources, rows = (graph.num_dst, graph.num_src) if transposed else (graph.num_src, graph.num_dst)
        return _default_plan(sources, rows, graph.num_edges, width, dtype.itemsize)

    def aggregate(
        self,
        graph: Graph,
        transposed: bool,
        x: Tensor,
        weight: Tensor | None,
        src_scale: Tensor | None,
        dst_scale: Tensor | None,
        mean: bool,
        widen: bool,
    ) -> Tensor:
        """Sum or mean over each row's edges."""
        heads = weight.size(1) if weight is not None and weight.dim() == 2 else 1
        plan = self.prepare(graph, transposed, x.size(1) // heads, x.dtype)
        csr = graph.transposed_csr if transposed else graph.csr
        if mean and transposed:
            inverse = graph.inverse_in_degrees(torch.float64 if x.dtype == torch.float64 else torch.float32)
            src_scale = inverse if src_scale is None else inverse * src_scale
            mean = False
        weight, ordered = kernels.in_graph_order(csr, graph.number, transposed, weight)
        return kernels.aggregate(csr, plan, x, weight, src_scale, dst_scale, mean, widen, ordered)

    def extremum(
        self, graph: Graph, x: Tensor, weight: Tensor | None, reduce: str, widen: bool, with_ties: bool
    ) -> tuple[Tensor, Tensor]:
        """Max or min, and the number of edges that reach it."""
        plan = self.prepare(graph, False, x.size(1), x.dtype)
        weight, ordered = kernels.in_graph_order(graph.csr, graph.number, False, weight)
        out, ties = kernels.extremum(graph.csr, plan, x, weight, reduce, widen, with_ties, ordered)
        return out, out.new_empty(0) if ties is None else ties

    def extremum_grad(
        self,
        graph: Graph,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        extremum: Tensor,
        ties: Tensor,
        for_x: bool,
        for_weight: bool,
    ) -> tuple[Tensor, Tensor]:
        """Compares every message with the extremum once more; nothing is kept for each edge."""
        share = (grad / (ties + (extremum == 0))).contiguous()
        plan = self.prepare(graph, for_x, x.size(1), x.dtype)
        none = share.new_empty(0)
        grad_x = (
            kernels.extremum_grad_source(graph.transposed_csr, plan, x, weight, extremum, share)
            if for_x
            else none
        )
        grad_weight = none
        if for_weight and weight is not None:
            grad_weight = kernels.extremum_grad_weight(graph.csr, plan, x, weight, extremum, share)
        return grad_x, grad_weight

    def edge_softmax(self, graph: Graph, scores: Tensor) -> Tensor:
        """[E, H]: softmax over every destination's edges."""
        plan = self.prepare(graph, False, scores.size(1), scores.dtype)
        return kernels.edge_softmax(graph.csr, plan, scores)

    def edge_softmax_grad(self, graph: Graph, softmax: Tensor, grad: Tensor) -> Tensor:
        """[E, H]: the gradient to the scores."""
        plan = self.prepare(graph, False, softmax.size(1), softmax.dtype)
        return kernels.edge_softmax_grad(graph.csr, plan, softmax, grad)

    def sddmm(self, graph: Graph, dst: Tensor, src: Tensor, mean: bool, widen: bool) -> Tensor:
        """[E, H]: a dot product for every edge and head."""
        if mean:
            dst = dst * graph.inverse_in_degrees(dst.dtype).view(-1, 1, 1)
        plan = self.prepare(graph, False, src.size(2), src.dtype)
        return kernels.sddmm(graph.csr, plan, dst, src, widen)

    def attend(
        self, graph: Graph, operands: AttentionOperands, with_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention over each destination's edges."""
        return kernels.attend(graph.csr, self._attention_plan(graph, operands), operands, with_weights)

    def attend_grad(
        self,
        graph: Graph,
        operands: AttentionOperands,
        out: Tensor,
        softmax: Tensor,
        weights: Tensor | None,
        grad: Tensor,
        grad_weights: Tensor | None,
        wanted: Sequence[bool],
    ) -> AttentionGrads:
        """Two sweeps that compute scores and weights once more; nothing is kept for each edge."""
        return kernels.attend_grad(
            graph.csr,
            graph.transposed_csr,
            self._attention_plan(graph, operands),
            operands,
            out,
            softmax,
            weights,
            grad,
            grad_weights,
            wanted,
        )

    def _attention_plan(self, graph: Graph, operands: AttentionOperands) -> CpuPlan:
        return self.prepare(graph, False, operands.heads * operands.value.size(2), operands.value.dtype)
