"""Runs a newly compiled kernel on a small graph, in a process that may crash.

    python -I trial.py LIBRARY sum|extremum DTYPE

The program exits with 0 if all results are right; otherwise it prints the difference. It uses ctypes but
neither onehop nor torch, which take longer to load than the compiler takes. ``Job`` mirrors the struct in
csrc/kernels/aggregate_rows.hpp, and ``Generated`` the struct in csrc/kernels/generated.hpp. All numbers are
small integers, so results are exact.
"""

import ctypes
import struct
import sys
from collections.abc import Sequence

Rows = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
Part = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 4)
NONE, WEIGHT, TERM, SCALE = range(4)
PADDING = 64  # entries of `col` that may be read ahead
GUARD = 77.0
# Sources of each row: a hub, an empty row, one edge, the same edge repeated, and a few.
SOURCES = [[(7 * i * i + 3) % 11 for i in range(67)], [], [4], [9] * 5, [0, 3, 10], [], [1, 2, 1, 8]]
NODES = 11


class Sweeps(ctypes.Structure):
    """Mirrors onehop::GeneratedSweeps."""

    _fields_ = (("rows", ctypes.c_void_p), ("part", ctypes.c_void_p))


class Generated(ctypes.Structure):
    """Mirrors onehop::Generated."""

    _fields_ = (
        ("version", ctypes.c_int32),
        ("job_bytes", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("columns", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("sweeps", Sweeps * 4 * 2 * 3),
    )


def job_of(acc: type[ctypes.c_float] | type[ctypes.c_double]) -> type[ctypes.Structure]:
    """Return onehop::Job for a type of sums."""
    address, count, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool
    fields = (
        ("rowptr", address), ("col", address), ("x", address), ("x_stride", count), ("weight", address),
        ("weight_stride", count), ("perm", address), ("col_scale", address), ("out", address),
        ("out_stride", count), ("out_is_acc", flag), ("ties", address), ("slots", address),
        ("tie_slots", address), ("width", count), ("row_of", address), ("row_scale", address), ("mean", flag),
        ("nontemporal", flag), ("keeps_near", flag), ("prefetch", ctypes.c_int), ("sign", acc),
    )  # fmt: skip
    return type("Job", (ctypes.Structure,), {"_fields_": fields})


JOBS = {acc: job_of(acc) for acc in (ctypes.c_float, ctypes.c_double)}


def feature(node: int, column: int) -> int:
    """Return a small integer, positive or negative."""
    return (node * 5 + column * 3 + node * column) % 9 - 4


def acc_of(dtype: str) -> type[ctypes.c_float] | type[ctypes.c_double]:
    """Return the type of sums for a dtype."""
    return ctypes.c_double if dtype == "float64" else ctypes.c_float


def number(value: float, dtype: str) -> bytes:
    """Return the bytes of a number in the features' dtype."""
    if dtype == "bfloat16":
        return struct.pack("<f", value)[2:]  # small integers lose nothing
    return struct.pack({"float32": "<f", "float64": "<d", "float16": "<e"}[dtype], value)


def expected(edges: Sequence[int], first: int, column: int, kind: int, factor: int) -> tuple[float, float]:
    """Return a row's result and the number of edges that reach it; ``first`` is its first edge's number."""
    messages = [
        feature(node, column) * (1 if factor == NONE else e % 3 + 1 if factor == WEIGHT else node % 2 + 1)
        for e, node in enumerate(edges, first)
    ]
    if kind == 0:
        return float(sum(messages)), 0.0
    if not messages:
        return 0.0, 0.0
    best = max(messages) if kind == 1 else min(messages)
    return float(best), float(messages.count(best))


def check(table: Generated, kind: int, with_ties: bool, factor: int, dtype: str) -> str | None:
    """Return the error of one of the sweeps, or None."""
    # With a weight, the min is computed as the negated max of negated messages.
    sign = -1 if kind == 2 and factor == WEIGHT else 1
    sweeps = table.sweeps[kind if sign > 0 else 1][with_ties][factor]
    if not (sweeps.rows and sweeps.part):
        return "a part of the kernel is missing"
    acc = acc_of(dtype)
    columns, stride, rows = table.columns, table.stride, len(SOURCES)
    edges = [node for row in SOURCES for node in row]
    rowptr = [sum(map(len, SOURCES[:row])) for row in range(rows + 1)]
    # Columns start at an odd offset if the stride allows it, and guards surround the result.
    begin = min(stride - columns, 3)
    values = b"".join(number(feature(n, c), dtype) for n in range(NODES) for c in range(stride))
    x = ctypes.create_string_buffer(values, len(values) + 64)
    width = stride
    out = (acc * ((rows + 1) * width))(*[GUARD] * ((rows + 1) * width))
    ties = (acc * ((rows + 1) * width))(*[GUARD] * ((rows + 1) * width))
    slots, tie_slots = (acc * width)(*[GUARD] * width), (acc * width)(*[GUARD] * width)
    keep = (
        (ctypes.c_int64 * (rows + 1))(*rowptr),
        (ctypes.c_int32 * (len(edges) + PADDING))(*edges),
        (acc * (len(edges) + PADDING))(*[e % 3 + 1 for e in range(len(edges))]),
        (acc * NODES)(*[node % 2 + 1 for node in range(NODES)]),
    )
    at = ctypes.addressof
    job = JOBS[acc](
        rowptr=at(keep[0]), col=at(keep[1]), x=at(x), x_stride=stride, out=at(out), out_stride=width,
        out_is_acc=True, ties=at(ties), slots=at(slots), tie_slots=at(tie_slots), width=width, prefetch=1,
        weight=at(keep[2]) if factor == WEIGHT else None, weight_stride=1,
        col_scale=at(keep[3]) if factor == SCALE else None, sign=sign,
    )  # fmt: skip
    Rows(sweeps.rows)(at(job), 0, rows, begin)
    Part(sweeps.part)(at(job), 2, rowptr[1], begin, 0)  # the hub without its first two edges
    for row in range(rows + 1):
        for column in range(width):
            inside = row < rows and begin <= column < begin + columns
            want = expected(SOURCES[row], rowptr[row], column, kind, factor) if inside else (GUARD, GUARD)
            place = row * width + column
            if out[place] != want[0] or (with_ties and ties[place] != want[1]):
                return f"row {row}, column {column}: {out[place]} instead of {want[0]}"
    for column in range(begin, begin + columns):
        want = expected(SOURCES[0][2:], 2, column, kind, factor)
        if slots[column] != sign * want[0] or (with_ties and tie_slots[column] != want[1]):
            return f"a cut row, column {column}: {slots[column]} instead of {sign * want[0]}"
    return None


def main(path: str, kind: str, dtype: str) -> str | None:
    """Return the error of a library, or None."""
    table = Generated.in_dll(ctypes.CDLL(path), "onehop_generated")
    job_bytes = ctypes.sizeof(JOBS[acc_of(dtype)])
    if table.job_bytes != job_bytes:
        return f"a job has {table.job_bytes} bytes instead of {job_bytes}"
    cases: list[tuple[int, bool, int]] = [(0, False, factor) for factor in (NONE, WEIGHT, SCALE)]
    if kind == "extremum":
        cases = [(k, ties, factor) for k in (1, 2) for ties in (False, True) for factor in (NONE, WEIGHT)]
    for case in cases:
        wrong = check(table, *case, dtype)
        if wrong is not None:
            return wrong
    return None


if __name__ == "__main__":
    difference = main(*sys.argv[1:])
    if difference is not None:
        sys.exit(f"its results are wrong: {difference}")
