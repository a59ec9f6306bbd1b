"""Sweeps of messages by the kernels that are written out for them.

This is the form in which a compiled message can run on a GPU; Triton's interpreter proves it. No layer takes
it yet: rows of many edges are not divided, so that a hub keeps one program busy.
"""

import functools
import itertools
import linecache
from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from onehop.errors import BackendError
from onehop.graph import Graph
from onehop.kernels.triton.message_text import is_by_row, refusal, text_of
from onehop.messages import Sink, Sweep

# Rows of a program, and how many edges of each it takes at a time: together enough for tensor cores.
_ROWS, _EDGES = 8, 4

_DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
_numbers = itertools.count()


def run(graph: Graph, sweep: Sweep, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The results of a sweep, as :func:`onehop.kernels.cpu.message.run` gives them.

    Args:
        graph: The graph.
        sweep: The sweep.
        inputs: The tensors behind its operands, all float32 or all float64, on one device.

    Raises:
        BackendError: It has no form in Triton; the text says why.
    """
    like = inputs[0]
    reason = refusal(sweep, like.dtype is torch.float64)
    if reason is not None:
        raise BackendError(f"message: no kernel can be written for this sweep, for {reason}.")
    csr = graph.on(like.device, sweep.transposed)
    rows = csr.rows
    programs = -(-rows // _ROWS)
    results = [_empty(result, rows, csr.edges, programs, like) for result in sweep.results]
    if programs:
        kernel_of(sweep)[(programs,)](
            *(csr.rowptr, csr.col, csr.perm),
            *(each.contiguous() for each in inputs),
            *results,
            rows,
            ROWS=_ROWS,
            EDGES=_EDGES,
            DTYPE=_DTYPES[like.dtype],
        )
    return [
        each if is_by_row(result.sink) or result.sink is Sink.EDGE else each.sum(0)
        for result, each in zip(sweep.results, results, strict=True)
    ]


def _empty(result: Any, rows: int, edges: int, programs: int, like: Tensor) -> Tensor:
    """Memory for a result; what is added up over all edges has a row for each program, to be added up."""
    height = rows if is_by_row(result.sink) else edges if result.sink is Sink.EDGE else programs
    return like.new_empty(height, result.width)


@functools.lru_cache(maxsize=256)
def kernel_of(sweep: Sweep) -> Any:
    """The kernel of a sweep, whose text Triton reads as if it were a file."""
    text, name = text_of(sweep), f"<message {next(_numbers)} of onehop>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module: dict[str, Any] = {"__name__": "onehop.kernels.triton.message"}
    exec(compile(text, name, "exec"), module)
    return module["message_kernel"]
