"""Neighbour aggregation: sum, mean, max and min over the sources of every destination."""

import os
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.stored import StoredGraph
from onehop.ops import extremum, linear, streaming
from onehop.ops.checks import check_features, check_graph, check_head_weight, check_vector
from onehop.ops.semiring import check_multiply, factor_or_term, sum_of_terms

REDUCTIONS = ("sum", "mean", "max", "min")

# Features of these dtypes are added up in their own.
_PLAIN = (torch.float32, torch.float64)


Stored = str | os.PathLike[str] | np.memmap
"""A matrix in a .npy file: its path, or all of it memory-mapped."""


@overload
def aggregate(
    graph: Graph,
    x: Tensor,
    weight: Tensor | None = None,
    reduce: str = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    *,
    multiply: str = "mul",
    backend: str | None = None,
) -> Tensor: ...
@overload
def aggregate(
    graph: StoredGraph,
    x: Stored,
    weight: Stored | None = None,
    reduce: str = "sum",
    *,
    out: str | os.PathLike[str],
    memory: int | None = None,
) -> Path: ...
def aggregate(
    graph: Graph | StoredGraph,
    x: Tensor | Stored,
    weight: Tensor | Stored | None = None,
    reduce: str = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    *,
    multiply: str = "mul",
    backend: str | None = None,
    out: str | os.PathLike[str] | None = None,
    memory: int | None = None,
) -> Tensor | Path:
    """Reduces, for every destination, the rows of its sources.

    ``out[i] = dst_scale[i] * reduce over edges e = (j -> i) of weight[e] * src_scale[j] * x[j]``

    With heads, each head's columns have weights of their own: ``weight[e, h] * src_scale[j] * x[j, h, :]``.

    Nothing of size edges times width is made, forward or backward. Sums of one plan are added in one order,
    whatever the number of threads. 16-bit features are added up in float32.

    Args:
        graph: The graph.
        x: [num_src, F] or [num_src, ...], float32, float64, bfloat16 or float16. Differentiable.
        weight: [E], in the caller's edge order; or [E, H] for x of shape [num_src, H, D]; None means 1.
            Differentiable.
        reduce: "sum", "mean" (the sum divided by the number of edges, not by the weights), "max" or "min".
            Destinations without edges get 0. NaN wins over every number. Where edges tie for the extremum the
            gradient is split evenly among them, as PyTorch's ``scatter_reduce`` does.
        src_scale: [num_src]; None means 1. With ``dst_scale`` it makes GCN's normalisation without an array
            of edge weights. Differentiable.
        dst_scale: [num_dst]; None means 1. Multiplies the reduced rows. Differentiable.
        multiply: What the weight w does to the row m = src_scale[j] * x[j]: "mul" w * m, "add" m + w, "sub"
            m - w, "copy" m (the weight is left out), "sigmoid" sigmoid(w) * m. With ``reduce`` it makes the
            semirings of FusedMM: ("add", "min") finds shortest paths, ("mul", "max") most reliable ones.
        backend: Who runs it, by name; None means the best that can (``onehop info`` lists them).
        out: Where to write the result, for what does not fit into memory: then ``graph`` is one that
            ``Graph.open`` opened, and ``x`` [num_src, F], float32 or float64, and ``weight`` [E] are .npy
            files, as paths or memory-mapped. Tiles are read, reduced and written; the result has the bits of
            one in memory, and appears when it is whole. A run that was interrupted goes on where it stopped
            when it is called again with the same arguments, by the contents of what it read. One run at a
            time writes a result; another is refused. No scales, no gradients.
        memory: With ``out``, the bytes that it may take; None means six tenths of what
            this process may still take.

    Returns:
        [num_dst, F] or [num_dst, ...], of the promoted dtype of x, weight and scales; with ``out`` its
        path. The file is in Fortran order if that of ``x`` is, or if its columns did not fit at once.

    Raises:
        ArgumentError: A shape, dtype or device does not fit, or ``reduce`` or ``multiply`` is unknown.
        BackendError: No backend runs on such tensors.
        FileFormatError: A file is truncated or holds something else.
        FileNotFoundError: There is no such file.
        StorageError: The result cannot be written, or another run is writing it.
    """
    if out is not None or isinstance(graph, StoredGraph):
        return _to_file(graph, x, weight, reduce, out, memory, (src_scale, dst_scale, multiply, backend))
    check_graph(graph)
    if memory is not None:
        raise ArgumentError("memory: it goes with out alone; tensors in memory need no budget.")
    features: Any = x  # the checks say what else it may be
    factor: Any = weight
    check_features("x", features, graph.num_src, "sources")
    return _in_memory(graph, features, factor, reduce, src_scale, dst_scale, multiply, backend)


def _to_file(
    graph: object,
    x: object,
    weight: object,
    reduce: str,
    out: str | os.PathLike[str] | None,
    memory: int | None,
    rest: tuple[Tensor | None, Tensor | None, str, str | None],
) -> Path:
    """Checks what goes with ``out``, and streams."""
    if not isinstance(graph, StoredGraph):
        raise ArgumentError(
            f"graph: with out, expected a graph on disk, got {type(graph).__name__}; graph.save(folder) "
            "stores one, and Graph.open(folder) opens it."
        )
    if out is None:
        raise ArgumentError(
            "out: a graph on disk is aggregated into a file; give its path, or take graph.load()."
        )
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce: expected one of {', '.join(REDUCTIONS)}, got {reduce!r}.")
    if rest != (None, None, "mul", None):
        raise ArgumentError("src_scale, dst_scale, multiply, backend: none goes with out; leave them out.")
    return streaming.aggregate(graph, x, weight, reduce, out, memory)


def _in_memory(
    graph: Graph,
    x: Tensor,
    weight: Tensor | None,
    reduce: str,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    multiply: str,
    backend: str | None,
) -> Tensor:
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce: expected one of {', '.join(REDUCTIONS)}, got {reduce!r}.")
    widen = adds = False
    if multiply != "mul":
        check_multiply(multiply, weight)
    if weight is not None or src_scale is not None or dst_scale is not None:
        x, weight, src_scale, dst_scale, widen = _promote(graph, x, weight, src_scale, dst_scale)
        if multiply != "mul":
            weight, adds = factor_or_term(multiply, weight)
    shape = x.shape
    if len(shape) != 2:
        x = x.flatten(1)
    out: Tensor
    if reduce == "sum" or reduce == "mean":
        out = linear.AGGREGATE(
            x,
            None if adds else weight,
            src_scale,
            dst_scale,
            graph.number,
            graph.num_dst,
            False,
            reduce == "mean",
            widen,
            backend or "",
        )
        if adds and weight is not None:
            terms = sum_of_terms(graph, weight, dst_scale, reduce == "mean", out.size(1), backend or "")
            out = out + terms.to(out.dtype)
    else:
        promoted = torch.float32 if widen else x.dtype
        if src_scale is not None:
            x = x * src_scale.unsqueeze(-1)
        out = _extremum(graph, x, weight, reduce, widen, backend or "", adds)
        if dst_scale is not None:
            out = out * dst_scale.unsqueeze(-1)
        out = out.to(promoted)
    return out if len(shape) == 2 else out.reshape(out.size(0), *shape[1:])


def _extremum(
    graph: Graph, x: Tensor, weight: Tensor | None, reduce: str, widen: bool, backend: str, adds: bool
) -> Tensor:
    """Max or min of [num_src, F]; with a weight [E, H], head by head."""
    parts: tuple[Tensor, ...] = (x,)
    weights: tuple[Tensor | None, ...] = (weight,)
    if weight is not None and weight.dim() == 2:
        parts, weights = x.tensor_split(weight.size(1), 1), weight.unbind(1)
    found = [
        extremum.EXTREMUM(part, each, graph.number, graph.num_dst, reduce, widen, False, backend, adds)[0]
        for part, each in zip(parts, weights, strict=True)
    ]
    return found[0] if len(found) == 1 else torch.cat(found, 1)


def _promote(
    graph: Graph, x: Tensor, weight: Tensor | None, src_scale: Tensor | None, dst_scale: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, bool]:
    """Weights and scales in the accumulator's dtype, and whether the result is wider than x."""
    dtype = x.dtype
    if (
        src_scale is None
        and dst_scale is None
        and dtype in _PLAIN
        and type(weight) is Tensor
        and weight.dtype is dtype
        and weight.shape == (graph.num_edges,)
        and weight.layout is torch.strided
        and weight.device == x.device
    ):
        # Nothing to convert, as in most calls: on small graphs the rest would show.
        return x, weight, None, None, False
    for name, vector, count, what in (
        ("weight", weight, graph.num_edges, "edges"),
        ("src_scale", src_scale, graph.num_src, "sources"),
        ("dst_scale", dst_scale, graph.num_dst, "destinations"),
    ):
        if vector is not None:
            if vector is weight and isinstance(weight, Tensor) and weight.dim() == 2:
                check_head_weight(weight, graph.num_edges, x)
            else:
                check_vector(name, vector, count, what, x)
            dtype = torch.promote_types(dtype, vector.dtype)
    if dtype == torch.float64:
        x = x.double()
    accumulator = torch.float64 if dtype == torch.float64 else torch.float32
    if weight is not None:
        weight = weight.to(accumulator)
    if src_scale is not None:
        src_scale = src_scale.to(accumulator).contiguous()
    if dst_scale is not None:
        dst_scale = dst_scale.to(accumulator).contiguous()
    return x, weight, src_scale, dst_scale, dtype != x.dtype
