"""Sweeps of messages on the CPU: their layout in a tile's memory, and running them."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.kernels.cpu.layout import address, rows, thread_count
from onehop.messages import End, Sink, Sweep
from onehop.messages.program import OPERATIONS
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan
from onehop.plans.default import default_plan

DTYPES = (torch.float32, torch.float64)
"""The dtypes in which messages are computed."""

# Limits from csrc/include/onehop/message.hpp.
_MOST_VALUES, _MOST_OPERANDS, _MOST_EDGES, _WHOLE_ROW = 256, 64, 16, 16

# Bytes of a tile's memory, unless a few wide rows need more: most of the L1 cache. With products, the
# matrices come from the L2 cache anyway, and more edges share each read of them.
_TILE_BYTES, _TILE_BYTES_OF_PRODUCTS = 24 << 10, 48 << 10

_BY_ROW = (Sink.ROW_SUM, Sink.ROW_MAX, Sink.ROW_MIN)

# Steps that move numbers between positions, so their result must not overwrite an operand.
_MOVING = frozenset({"spread", "collect", "largest", "product"})


def fits(sweep: Sweep) -> bool:
    """Return whether a sweep has no more operands and values than the kernel allows."""
    return len(sweep.operands) <= _MOST_OPERANDS and len(sweep.operands) + len(sweep.steps) <= _MOST_VALUES


def run(graph: Graph, sweep: Sweep, inputs: Sequence[Tensor], plan: CpuPlan | None = None) -> list[Tensor]:
    """Run a sweep and return its results.

    Args:
        graph: The graph.
        sweep: The sweep; :func:`fits` must hold.
        inputs: The tensors of the sweep's operands, all of one dtype of :data:`DTYPES`: [rows, width] for
            rows, [width] for a fixed row, [rows, columns] for a matrix.
        plan: The plan; None means the default plan.

    Returns:
        [rows, width] for results over rows, [E, width] for edges in the caller's order, [width] for sums over
        all edges.
    """
    dtype = inputs[0].dtype
    csr = graph.transposed_csr if sweep.transposed else graph.csr
    widest = max(operand.width for operand in sweep.operands if operand.end is not End.MATRIX)
    plan = plan or default_plan(csr.cols, csr.rows, csr.edges, widest, dtype.itemsize)
    laid_out = [
        tensor.contiguous() if operand.end in (End.FIXED, End.MATRIX) else rows(tensor)
        for operand, tensor in zip(sweep.operands, inputs, strict=True)
    ]
    heights = {**dict.fromkeys(_BY_ROW, (csr.rows,)), Sink.EDGE: (csr.edges,)}
    results = [empty((*heights.get(r.sink, ()), r.width), dtype) for r in sweep.results]
    extension.message(
        _code(sweep, dtype.itemsize),
        csr,
        DTYPE_CODES[dtype],
        thread_count(plan),
        plan.prefetch,
        plan.edges_per_item,
        [(address(tensor), tensor.stride(0)) for tensor in laid_out],
        [(result.data_ptr(), result.stride(0)) for result in results],
    )
    return results


@functools.lru_cache(maxsize=256)
def _code(sweep: Sweep, itemsize: int) -> Any:
    """Return the sweep in the extension's form, with a place for every row that is copied or computed."""
    numbers = _Memory(sweep, 1).size
    multiplies = any(step.operation == "product" for step in sweep.steps)
    room = _TILE_BYTES_OF_PRODUCTS if multiplies else _TILE_BYTES
    tile = min(max(room // (numbers * itemsize), 1), _MOST_EDGES) if numbers else _MOST_EDGES
    memory = _Memory(sweep, tile)
    # The numbers of onehop::RowOf: row, column, edge, fixed, matrix.
    ends = {End.TARGET: 0, End.SOURCE: 1, End.EDGE: 2, End.FIXED: 3, End.MATRIX: 4}
    if sweep.transposed:
        ends[End.TARGET], ends[End.SOURCE] = ends[End.SOURCE], ends[End.TARGET]
    offsets = {True: 0, False: 0}
    results = []
    for result in sweep.results:
        by_row = result.sink in _BY_ROW
        results.append((result.sink.value, result.value, result.other, result.width, offsets[by_row]))
        if result.sink is not Sink.EDGE:
            offsets[by_row] += result.width
    return extension.MessageCode(
        [
            (ends[operand.end], operand.width, place)
            for operand, place in zip(sweep.operands, memory.operands, strict=True)
        ],
        [
            (OPERATIONS.index(s.operation), s.inputs[0], (*s.inputs, -1)[1], s.width, place, *s.numbers)
            for s, place in zip(sweep.steps, memory.steps, strict=True)
        ],
        results,
        tile,
        memory.size,
        offsets[True],
        offsets[False],
    )


class _Memory:
    """The places of rows in a tile's memory; a step reuses a place that no later step reads.

    Attributes:
        operands: The places of copies of operands; -1 if rows are read without a copy.
        steps: The places of the steps' results.
        size: The total size of all places, in numbers.
    """

    def __init__(self, sweep: Sweep, tile: int) -> None:
        self._tile = tile
        self._free: dict[int, list[int]] = {}
        self.size = 0
        self.operands = [
            -1 if o.end is End.MATRIX or o.width % _WHOLE_ROW == 0 else self._take(o.width)
            for o in sweep.operands
        ]
        first = len(sweep.operands)
        last = {value: number for number, step in enumerate(sweep.steps) for value in step.inputs}
        results = {value for result in sweep.results for value in (result.value, result.other)}
        self.steps: list[int] = []
        for number, step in enumerate(sweep.steps):
            over = {v for v in step.inputs if v >= first and last[v] == number and v not in results}
            if step.operation in _MOVING:
                self.steps.append(self._take(step.width))
            self._give(over, sweep, first)
            if step.operation not in _MOVING:
                self.steps.append(self._take(step.width))

    def _take(self, width: int) -> int:
        free = self._free.get(width)
        if free:
            return free.pop()
        place = self.size
        self.size += -(-self._tile * width // _WHOLE_ROW) * _WHOLE_ROW
        return place

    def _give(self, values: set[int], sweep: Sweep, first: int) -> None:
        for value in sorted(values):
            self._free.setdefault(sweep.steps[value - first].width, []).append(self.steps[value - first])
