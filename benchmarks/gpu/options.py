"""What the programs of this folder share: options, the check before anything is measured, a time limit."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks.gpu.correctness import Verdict, hostile_edges, judge_all
from benchmarks.gpu.grid import Case
from onehop.bench import command
from onehop.kernels.triton import availability

T = TypeVar("T")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parser(description: str, name: str) -> argparse.ArgumentParser:
    """A parser with the options of all programs that measure on a GPU, for a program of this name."""
    made = command.parser(description, json=False)
    made.prog = name
    made.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of results")
    made.add_argument("--minutes", type=float, default=8.0, help="no case is begun after so long")
    made.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["float32", "bfloat16"])
    made.add_argument("--scale", type=float, default=1.0, help="multiplies nodes and edges of the graphs")
    made.add_argument("--hub", type=int, default=2000, help="edges of the hub in the check")
    return made


def can_run() -> bool:
    """Whether the kernels can run here; prints why if they cannot."""
    reason = availability.missing()
    if reason is not None:
        sys.stdout.write(f"The GPU kernels cannot run here: triton {reason}.\n")
    return reason is None


def checked(device: torch.device, hub: int, dtypes: Sequence[str]) -> list[Verdict]:
    """Compares every kernel with the reference, and prints what is wrong and how many are right."""
    verdicts = judge_all(*hostile_edges(device, hub), [DTYPES[name] for name in dtypes])
    wrong = [verdict for verdict in verdicts if not verdict.passes]
    for verdict in wrong:
        sys.stdout.write(f"wrong: {verdict.operator} {verdict.dtype}, {verdict}\n")
    sys.stdout.write(f"{len(verdicts) - len(wrong)} of {len(verdicts)} results and gradients are right.\n")
    return verdicts


def until(
    deadline: float, cases: Iterable[Case], measure: Callable[[Case], T]
) -> Iterator[tuple[Case, T | None]]:
    """Measures case by case; None for one that there was no time for (``time.monotonic()``)."""
    for case in cases:
        yield case, measure(case) if time.monotonic() <= deadline else None
