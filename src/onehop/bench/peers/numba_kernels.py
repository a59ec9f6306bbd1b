"""Simple loops compiled by numba: rows in parallel, int32 columns, no further optimisation."""

from typing import Any

import numba
import numpy as np


def _sum(mean: bool) -> Any:
    def kernel(rowptr: Any, col: Any, x: Any) -> Any:
        out = np.empty((len(rowptr) - 1, x.shape[1]), x.dtype)
        for i in numba.prange(len(rowptr) - 1):
            out[i] = 0
            for e in range(rowptr[i], rowptr[i + 1]):
                for f in range(x.shape[1]):
                    out[i, f] += x[col[e], f]
            if mean:
                out[i] /= np.float32(max(rowptr[i + 1] - rowptr[i], 1))
        return out

    return kernel


def _weighted_sum(rowptr: Any, col: Any, x: Any, weight: Any) -> Any:
    out = np.empty((len(rowptr) - 1, x.shape[1]), x.dtype)
    for i in numba.prange(len(rowptr) - 1):
        out[i] = 0
        for e in range(rowptr[i], rowptr[i + 1]):
            for f in range(x.shape[1]):
                out[i, f] += weight[e] * x[col[e], f]
    return out


def _extremum(better: Any, worst: float) -> Any:
    def kernel(rowptr: Any, col: Any, x: Any) -> Any:
        out = np.empty((len(rowptr) - 1, x.shape[1]), x.dtype)
        for i in numba.prange(len(rowptr) - 1):
            out[i] = worst if rowptr[i] < rowptr[i + 1] else 0
            for e in range(rowptr[i], rowptr[i + 1]):
                for f in range(x.shape[1]):
                    out[i, f] = better(out[i, f], x[col[e], f])
        return out

    return kernel


_compile = numba.njit(parallel=True)
KERNELS: dict[str, Any] = {
    "sum": _compile(_sum(mean=False)),
    "weighted_sum": _compile(_weighted_sum),
    "mean": _compile(_sum(mean=True)),
    "max": _compile(_extremum(max, -np.inf)),
    "min": _compile(_extremum(min, np.inf)),
}
