"""Neighbour aggregation: sum, mean, max and min over the sources of every destination.

``onehop::aggregate`` computes the linear reductions. ``mean`` divides every message by the number of edges of
its destination. So its derivative is the transposed operator with the same flag, which divides by the degrees
of the columns. Max and min are in :mod:`onehop.ops.extremum`.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, overload

import numpy as np
import torch
from torch import Tensor

from onehop.calls import Aggregate, AggregateGradients, Sddmm, accumulator
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.stored import StoredGraph
from onehop.ops import streaming
from onehop.ops.batching import Dims
from onehop.ops.checks import check_features, check_graph
from onehop.ops.extremum import extremum_of_rows
from onehop.ops.factors import Multiply, check_factors, check_multiply, factor_or_term, promoted
from onehop.ops.library import Context, Operator, run
from onehop.ops.narrow_batches import in_columns
from onehop.ops.narrow_heads import are_narrow, reduce_by_columns
from onehop.ops.scipy_matrices import Array, SciPyMatrix, aggregated, is_scipy_matrix
from onehop.ops.signals import on_signals

Reduction = Literal["sum", "mean", "max", "min"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
Reduce = Reduction | Literal["add"]
"""The values of ``reduce``; "add" means "sum", as in PyG."""

# Features of these dtypes are added up in the same dtype.
_PLAIN = (torch.float32, torch.float64)
_MATRIX = 2


Stored = str | os.PathLike[str] | np.memmap | streaming.RawMatrix
"""A matrix in a .npy file, as a path or as a memory-mapped array of the whole file, or in a raw file."""


@overload
def aggregate(
    graph: Graph,
    x: Tensor,
    weight: Tensor | None = None,
    reduce: Reduce = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    *,
    multiply: Multiply = "mul",
    node_dim: int = 0,
    backend: str | None = None,
) -> Tensor: ...
@overload
def aggregate(
    graph: SciPyMatrix,
    x: Array,
    weight: Array | None = None,
    reduce: Reduce = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    *,
    multiply: Multiply = "mul",
    backend: str | None = None,
) -> Array: ...
@overload
def aggregate(
    graph: StoredGraph,
    x: Stored,
    weight: Stored | None = None,
    reduce: Reduce = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    *,
    out: str | os.PathLike[str],
    memory: int | None = None,
) -> Path: ...
def aggregate(
    graph: Graph | StoredGraph | SciPyMatrix,
    x: Tensor | Stored | Array,
    weight: Tensor | Stored | Array | None = None,
    reduce: Reduce = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    *,
    multiply: Multiply = "mul",
    node_dim: int = 0,
    backend: str | None = None,
    out: str | os.PathLike[str] | None = None,
    memory: int | None = None,
) -> Tensor | Path | Array:
    """Reduce, for every destination, the rows of its sources.

    ``out[i] = dst_scale[i] * reduce over edges e = (j -> i) of weight[e] * src_scale[j] * x[j]``

    With heads, each head's columns have their own weights: ``weight[e, h] * src_scale[j] * x[j, h, :]``. With
    ``node_dim``, any number of signals share the graph, its weights and its scales, and edges are read once
    for all signals.

    No tensor of size edges times width is made, forward or backward. For one plan, the order of a sum does
    not depend on the number of threads. 16-bit features are added up in float32.

    Args:
        graph: The graph; or a sparse matrix of SciPy, [num_dst, num_src], whose entries are edges from
            columns to rows, and whose values are the weight if none is given. Then ``x`` and ``weight`` may
            be NumPy arrays, and so is the result: ``aggregate(matrix, x)`` is ``matrix @ x``.
        x: [num_src, F] or [num_src, ...]; for signals [..., num_src, F], with ``node_dim``. float32, float64,
            bfloat16 or float16. Differentiable.
        weight: [E], in the caller's edge order; or [E, H] for x of shape [num_src, H, D] or, for signals,
            [..., num_src, H, D]; None means 1. Differentiable.
        reduce: "sum" (or "add", as in PyG), "mean" (the sum divided by the number of edges, not by the
            weights), "max" or "min". Destinations without edges get 0. NaN wins over every number. If edges
            tie for an extremum, the gradient is split evenly among them, as in PyTorch's ``scatter_reduce``.
        src_scale: [num_src]; None means 1. Together with ``dst_scale``, it gives GCN's normalisation without
            an array of edge weights. Differentiable.
        dst_scale: [num_dst]; None means 1. Multiplies the reduced rows. Differentiable.
        multiply: How the weight w and the row m = src_scale[j] * x[j] are combined: "mul" w * m, "add" m + w,
            "sub" m - w, "copy" m (the weight is ignored), "sigmoid" sigmoid(w) * m. Together with ``reduce``,
            it gives the semirings of FusedMM: ("add", "min") finds shortest paths, ("mul", "max") most
            reliable paths.
        node_dim: The dimension of ``x`` that indexes the nodes, as in PyG; negative values count from the
            end. Earlier dimensions are signals on the same graph: with -2, x is [..., num_src, F], and the
            result [..., num_dst, F]. Later dimensions belong to a row.
        backend: Name of the backend; None means the best available one (``onehop info`` lists them).
        out: The file for the result, if data do not fit into memory. Then ``graph`` must come from
            ``Graph.open``, and ``x`` [num_src, F] and ``weight`` [E] are .npy files, given as paths or
            memory-mapped arrays, or a :class:`onehop.RawMatrix`. The features are float16, float32, float64,
            or raw bfloat16; 16-bit features are added up in float32. Weight and scales are float32, or
            float64 if the features are. Scales are tensors. Tiles are read, reduced and written; the result
            file appears when it is complete. It has the same bits as a result in memory, except for sums of
            more than 1,024 edges, which may be added up in other pieces. An interrupted run resumes if it is
            called again with the same arguments, which are compared by their contents. Only one run at a time
            can write a result. There are no gradients.
        memory: With ``out``, the maximal number of bytes to use; None means six tenths of the memory that
            this process may still use.

    Returns:
        [num_dst, F] or [num_dst, ...], of the promoted dtype of x, weight and scales; for signals a view
        [..., num_dst, F], which is not contiguous; with ``out``, the path of the file. The file is float32
        for bfloat16 features, because .npy files have no bfloat16. It is in Fortran order if the file of
        ``x`` is, or if not all columns fit into memory at once.

    Raises:
        ArgumentError: A shape, dtype or device does not fit, ``reduce`` or ``multiply`` is unknown, or ``x``
            has no dimension ``node_dim``.
        BackendError: No backend runs on such tensors.
        FileFormatError: A file is truncated or has other contents.
        FileNotFoundError: There is no such file.
        StorageError: The result cannot be written, or another run is writing it.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> x = torch.tensor([[1.0, 2.0], [10.0, 20.0], [5.0, 5.0]])
        >>> onehop.aggregate(graph, x)  # node 2 gets the rows of 0 and 1; no edge ends at node 0
        tensor([[ 0.,  0.],
                [ 1.,  2.],
                [11., 22.]])
        >>> onehop.aggregate(graph, x, reduce="max").tolist()
        [[0.0, 0.0], [1.0, 2.0], [10.0, 20.0]]
        >>> onehop.aggregate(graph, x, weight=torch.tensor([1.0, 3.0, 1.0])).tolist()
        [[0.0, 0.0], [1.0, 2.0], [13.0, 26.0]]
    """
    if reduce == "add":
        reduce = "sum"
    if out is not None or isinstance(graph, StoredGraph):
        return _to_file(
            graph, x, weight, reduce, out, memory, (src_scale, dst_scale, multiply, node_dim, backend)
        )
    if type(graph) is not Graph:
        if is_scipy_matrix(graph):
            options = {"reduce": reduce, "src_scale": src_scale, "dst_scale": dst_scale, "multiply": multiply}
            return aggregated(aggregate, graph, x, weight, node_dim=node_dim, backend=backend, **options)  # type: ignore[no-any-return]
        check_graph(graph)
    if memory is not None:
        raise ArgumentError("memory: it goes with out alone; tensors in memory need no budget.")
    if node_dim != 0:
        of_rows = partial(
            aggregate,
            graph,
            weight=weight,
            reduce=reduce,
            src_scale=src_scale,
            dst_scale=dst_scale,
            multiply=multiply,
            backend=backend,
        )
        return on_signals(graph, of_rows, x, weight, node_dim)
    features: Any = x  # the checks below exclude other types
    factor: Any = weight
    # Nearly all features pass this test; on small graphs, calling the check would take noticeable time.
    if not (
        isinstance(x, Tensor)
        and x.dtype in _PLAIN
        and x.layout is torch.strided
        and len(x.shape) >= _MATRIX
        and x.shape[0] == graph.num_src
    ):
        check_features("x", features, graph.num_src, "sources")
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce: expected one of {', '.join(REDUCTIONS)}, got {reduce!r}.")
    if multiply != "mul":
        check_multiply(multiply, factor)
    if factor is not None or src_scale is not None or dst_scale is not None:
        check_factors(graph, features, factor, src_scale, dst_scale)
    return reduce_rows(
        graph,
        features,
        weight=factor,
        reduce=reduce,
        src_scale=src_scale,
        dst_scale=dst_scale,
        multiply=multiply,
        backend=backend or "",
    )


def _to_file(
    graph: object,
    x: object,
    weight: object,
    reduce: str,
    out: str | os.PathLike[str] | None,
    memory: int | None,
    rest: tuple[Tensor | None, Tensor | None, str, int, str | None],
) -> Path:
    """Checks the arguments that ``out`` needs, and runs the streamed aggregation."""
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
    src_scale, dst_scale, *others = rest
    if others != ["mul", 0, None]:
        raise ArgumentError("multiply, node_dim, backend: none of them goes with out; leave them out.")
    return streaming.aggregate(graph, x, weight, reduce, out, memory, streaming.Scales(src_scale, dst_scale))


def reduce_rows(
    graph: Graph,
    x: Tensor,
    *,
    weight: Tensor | None = None,
    reduce: str = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    multiply: str = "mul",
    backend: str = "",
    widen: bool = False,
) -> Tensor:
    """Runs :func:`aggregate` on operands whose shapes, devices and names were checked.

    ``widen`` leaves the result of 16-bit features in float32.
    """
    if weight is not None or src_scale is not None or dst_scale is not None:
        dtype = x.dtype
        # Most calls have nothing to convert; on small graphs, calling the conversion would take noticeable
        # time.
        if not (
            dtype in _PLAIN
            and (weight is None or weight.dtype is dtype)
            and (src_scale is None or (src_scale.dtype is dtype and src_scale.is_contiguous()))
            and (dst_scale is None or (dst_scale.dtype is dtype and dst_scale.is_contiguous()))
        ):
            x, weight, src_scale, dst_scale, wider = promoted(x, weight, src_scale, dst_scale)
            widen = widen or wider
    shape = x.shape
    if len(shape) != 2:
        x = x.flatten(1)
    if reduce == "max" or reduce == "min":
        scales = src_scale, dst_scale
        out: Tensor = extremum_of_rows(
            graph, x, weight, reduce, scales, multiply, widen=widen, backend=backend
        )
    elif (
        weight is not None
        and src_scale is dst_scale is None
        and multiply == "mul"
        and are_narrow(graph, x, weight, reduce, backend)
    ):
        out = reduce_by_columns(graph, x, weight, reduce)
    else:
        factor, adds = (weight, False) if multiply == "mul" else factor_or_term(multiply, weight)
        call = Aggregate(
            x=x,
            weight=None if adds else factor,
            src_scale=src_scale,
            dst_scale=dst_scale,
            graph=graph.number,
            rows=graph.num_dst,
            mean=reduce == "mean",
            widen=widen,
            backend=backend,
        )
        out = AGGREGATE(call, graph)
        if adds and factor is not None:
            out = out + _sum_of_terms(call, factor).to(out.dtype)
    return out if len(shape) == 2 else out.reshape(out.size(0), *shape[1:])


def _sum_of_terms(call: Aggregate, term: Tensor) -> Tensor:
    """Computes the contribution of per-edge terms to sums; it is the same in all columns of a head.

    Args:
        call: The sum without the terms.
        term: [E] or [E, H], of the accumulator's dtype.

    Returns:
        [num_dst, F], or [num_dst, 1] if all columns are equal.
    """
    heads = term.size(1) if term.dim() == 2 else 1
    ones = torch.ones(call.x.size(0), heads, dtype=term.dtype, device=term.device)
    total: Tensor = AGGREGATE(call._replace(x=ones, weight=term, src_scale=None, widen=False))
    return total if heads == 1 else total.repeat_interleave(call.x.size(1) // heads, 1)


class _Aggregate(Operator[Aggregate]):
    call = Aggregate
    edge_fields = ("weight",)
    gradients_of = AggregateGradients

    def fake(self, call: Aggregate) -> Tensor:
        dtype = accumulator(call.x.dtype) if call.widen else call.x.dtype
        return call.x.new_empty((call.rows, call.x.size(1)), dtype=dtype)

    def saved(
        self, call: Aggregate, results: Any, needs: tuple[str, ...]
    ) -> tuple[Aggregate, tuple[Tensor, ...]]:
        # The gradient to x does not need x, so it is not saved; this saves memory in most layers.
        return call._replace(x=None) if needs == ("x",) else call, ()  # type: ignore[arg-type]

    def gradients(self, context: Context[Aggregate], *grads: Tensor | None) -> AggregateGradients:
        call, needs, grad = context.call, context.needs, grads[0]
        assert grad is not None
        grad_x = grad_weight = grad_src = grad_dst = None
        if "x" in needs or "src_scale" in needs:
            # If the outer scale needs a gradient too, it is not applied here, because both gradients need
            # this product.
            outer = None if "src_scale" in needs else call.src_scale
            sources = context.shapes["x"][0] if "x" in context.shapes else call.x.size(0)
            # The derivative is the aggregation over reversed edges, with the scales exchanged.
            turned = call._replace(
                x=grad,
                src_scale=call.dst_scale,
                dst_scale=outer,
                rows=sources,
                transposed=not call.transposed,
                widen=True,
            )
            grad_x = AGGREGATE(turned, context.graph)
        if "src_scale" in needs and call.src_scale is not None and grad_x is not None:
            grad_src = (grad_x * call.x).sum(-1)
            grad_x = grad_x * call.src_scale.unsqueeze(-1)
        if "weight" in needs and call.weight is not None:
            grad_weight = _weight_gradient(call, grad, call.weight)
        if "dst_scale" in needs:
            plain = AGGREGATE(call._replace(dst_scale=None, widen=True), context.graph)
            grad_dst = (grad * plain).sum(-1)
        return AggregateGradients(x=grad_x, weight=grad_weight, src_scale=grad_src, dst_scale=grad_dst)

    def fold(self, size: int, dims: Dims, args: Sequence[Any]) -> Tensor | None:
        return in_columns(self._dispatched, dims, args)


def _weight_gradient(call: Aggregate, grad: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of the weight, a dot product for each edge and head."""
    rows = grad if call.dst_scale is None else grad * call.dst_scale.unsqueeze(-1)
    cols = call.x if call.src_scale is None else call.x * call.src_scale.unsqueeze(-1)
    dst, src = (cols, rows) if call.transposed else (rows, cols)
    if dst.dtype != src.dtype:
        dtype = torch.promote_types(dst.dtype, src.dtype)
        dst, src = dst.to(dtype), src.to(dtype)
    heads = weight.size(1) if weight.dim() == 2 else 1
    shape = (heads, dst.size(1) // heads)
    products: Tensor = run(
        Sddmm(
            dst=dst.reshape(dst.size(0), *shape),
            src=src.reshape(src.size(0), *shape),
            graph=call.graph,
            edges=weight.size(0),
            mean=call.mean,
            widen=True,
            backend=call.backend,
        )
    )
    return products.view(weight.shape)


AGGREGATE = _Aggregate()
