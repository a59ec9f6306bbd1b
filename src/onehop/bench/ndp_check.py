"""Checks of the near-rank machine's results, also for features that do not fit into memory at once."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

import onehop
from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan, functional
from onehop.machines.ndp.mapping import Pods

# Columns that are there at once: 2.4 million nodes then take some 300 MB in float64.
_COLUMNS = 16
# Windows of a sample, and targets of each.
_WINDOWS, _TARGETS = 4, 128


def output_errors(
    machine: Machine,
    graph: Graph,
    plan: NdpPlan,
    width: int,
    full: Sequence[str],
    sampled: Sequence[str],
    progress: Callable[[str, float], None] = lambda _what, _done: None,
) -> dict[str, float]:
    """The largest difference between what the machine computes and onehop's own sum in float64.

    Features are standard normal, drawn anew a few columns at a time.

    Args:
        machine: The machine.
        graph: The graph.
        plan: Says the order of targets.
        width: Columns of the feature vectors.
        full: Mappings to be checked on all targets.
        sampled: Mappings to be checked on four windows of 128 targets and on the target with the most edges.
        progress: Told how far it is.
    """
    rows = _sample(graph)
    part = _rows_of(graph, rows)
    pods = {name: Pods.of(machine.config.topology, name) for name in (*full, *sampled)}
    work = {name: machine.workload(graph, plan, each) for name, each in pods.items()}
    errors = dict.fromkeys(pods, 0.0)
    for first in range(0, width, _COLUMNS):
        progress("checking results", first / width)
        columns = (first, min(first + _COLUMNS, width))
        x = torch.randn(
            graph.num_src, columns[1] - first, generator=torch.Generator().manual_seed(first), device="cpu"
        )
        wide = x.double()
        if full:
            expected = onehop.aggregate(graph, wide)
            for name in full:
                got = functional.aggregate(work[name], pods[name], x, columns=columns, width=width)
                errors[name] = max(errors[name], _difference(got, expected))
            del expected, got
        if sampled:
            expected = onehop.aggregate(part, wide)
            for name in sampled:
                got = functional.aggregate(work[name], pods[name], x, rows=rows, columns=columns, width=width)
                errors[name] = max(errors[name], _difference(got, expected))
    progress("checking results", 1.0)
    return errors


def _difference(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).abs().max()) if got.numel() else 0.0


def _sample(graph: Graph) -> np.ndarray:
    """[K], int64: targets of windows spread evenly, and the one with the most edges."""
    if graph.num_dst == 0:
        return np.empty(0, dtype=np.int64)
    starts = np.linspace(0, max(graph.num_dst - _TARGETS, 0), _WINDOWS).astype(np.int64)
    wanted = np.concatenate([start + np.arange(min(_TARGETS, graph.num_dst)) for start in starts])
    return np.unique(np.append(wanted, int(graph.in_degrees.argmax())))


def _rows_of(graph: Graph, rows: np.ndarray) -> Graph:
    """The graph of these destinations alone, with all sources."""
    rowptr, col = graph.rowptr.numpy(), graph.col.numpy()
    counts = rowptr[rows + 1] - rowptr[rows]
    parts = [col[rowptr[row] : rowptr[row + 1]] for row in rows]
    kept = np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
    ends = np.concatenate([[0], np.cumsum(counts)])
    return Graph.from_csr(torch.from_numpy(ends), torch.from_numpy(kept), num_src=graph.num_src)
