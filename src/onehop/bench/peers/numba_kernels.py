"""The loops that anyone would write, compiled by numba: rows in parallel, int32 columns, nothing clever."""

from typing import Any

import numba
import numpy as np


def _sum(rowptr: Any, col: Any, x: Any) -> Any:
    out = np.empty((len(rowptr) - 1, x.shape[1]), x.dtype)
    for i in numba.prange(len(rowptr) - 1):
        out[i] = 0
        for e in range(rowptr[i], rowptr[i + 1]):
            for f in range(x.shape[1]):
                out[i, f] += x[col[e], f]
    return out


def _weighted_sum(rowptr: Any, col: Any, x: Any, weight: Any) -> Any:
    out = np.empty((len(rowptr) - 1, x.shape[1]), x.dtype)
    for i in numba.prange(len(rowptr) - 1):
        out[i] = 0
        for e in range(rowptr[i], rowptr[i + 1]):
            for f in range(x.shape[1]):
                out[i, f] += weight[e] * x[col[e], f]
    return out


def _mean(rowptr: Any, col: Any, x: Any) -> Any:
    out = np.empty((len(rowptr) - 1, x.shape[1]), x.dtype)
    for i in numba.prange(len(rowptr) - 1):
        out[i] = 0
        for e in range(rowptr[i], rowptr[i + 1]):
            for f in range(x.shape[1]):
                out[i, f] += x[col[e], f]
        out[i] /= np.float32(max(rowptr[i + 1] - rowptr[i], 1))
    return out


def _max(rowptr: Any, col: Any, x: Any) -> Any:
    out = np.empty((len(rowptr) - 1, x.shape[1]), x.dtype)
    for i in numba.prange(len(rowptr) - 1):
        out[i] = -np.inf if rowptr[i] < rowptr[i + 1] else 0
        for e in range(rowptr[i], rowptr[i + 1]):
            for f in range(x.shape[1]):
                out[i, f] = max(out[i, f], x[col[e], f])
    return out


def _min(rowptr: Any, col: Any, x: Any) -> Any:
    out = np.empty((len(rowptr) - 1, x.shape[1]), x.dtype)
    for i in numba.prange(len(rowptr) - 1):
        out[i] = np.inf if rowptr[i] < rowptr[i + 1] else 0
        for e in range(rowptr[i], rowptr[i + 1]):
            for f in range(x.shape[1]):
                out[i, f] = min(out[i, f], x[col[e], f])
    return out


_compile = numba.njit(parallel=True)
KERNELS: dict[str, Any] = {
    "sum": _compile(_sum),
    "weighted_sum": _compile(_weighted_sum),
    "mean": _compile(_mean),
    "max": _compile(_max),
    "min": _compile(_min),
}
