"""What the programs of this folder share: their options, and the check before anything is measured."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.gpu.correctness import Verdict, hostile_edges, judge_all
from onehop.bench import command

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parser(description: str, name: str) -> argparse.ArgumentParser:
    """A parser with the options of all programs that measure on a GPU.

    Args:
        description: What the program does.
        name: How it is called.
    """
    made = command.parser(description, json=False)
    made.prog = name
    made.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of results")
    made.add_argument("--minutes", type=float, default=8.0, help="no case is begun after so long")
    made.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["float32", "bfloat16"])
    made.add_argument("--scale", type=float, default=1.0, help="multiplies nodes and edges of the graphs")
    made.add_argument("--hub", type=int, default=2000, help="edges of the hub in the check")
    return made


def checked(device: torch.device, hub: int, dtypes: Sequence[str]) -> list[Verdict]:
    """Compares every kernel with the reference, and prints what is wrong and how many are right."""
    verdicts = judge_all(*hostile_edges(device, hub), [DTYPES[name] for name in dtypes])
    wrong = [verdict for verdict in verdicts if not verdict.passes]
    for verdict in wrong:
        sys.stdout.write(
            f"wrong: {verdict.operator} {verdict.dtype}, {verdict.of}: error {verdict.error:.2g}, "
            f"allowed {verdict.allowed:.2g}\n"
        )
    sys.stdout.write(f"{len(verdicts) - len(wrong)} of {len(verdicts)} results and gradients are right.\n")
    return verdicts
