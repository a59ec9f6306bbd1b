"""Layers and models of packages built on PyG, forward and backward, beside the same under ``onehop.patch()``.

    python -m benchmarks.packages [--cases DiffConv,GNAConv] [--rounds 5] [--threads N] [--json FILE]
                                  [--page FILE]

Each case (``cases.py``) has a process of its own, in which results and gradients are compared before both
ways take turns. ``make packages`` installs the packages and writes the page of the documents. A package that
is not installed is named. A result that differs by more than rounding makes the exit code 1. A deep model may
amplify rounding, so what differs is compared with the results in doubles: it is right if it is not twice as
far from these as PyG's own result.
"""

import copy
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import onehop
from benchmarks import columns, harness
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.packages.cases import CASES, Case, made, one_pass
from benchmarks.pages import replace_between
from onehop.bench.stamp import machine_line, stamp
from onehop.tables import Table


def measured(order: Row) -> Row:
    """The times of both ways and what each layer did, in a process of its own."""
    torch.set_num_threads(order["threads"])
    try:
        case = made(order["case"])
    except ImportError as missing:
        return {"missing": str(missing)}
    row = harness.beside_pyg(one_pass(case), order["rounds"])
    row["wrong"] = row["wrong"] and not _is_rounded(case)
    explained = onehop.explain(case.module, *case.operands)
    told = [re.sub(r"\d+ signals", "all signals", each.text) for each in explained.layers]
    # A model without layers of PyG's calls functions of torch.
    told = told or [f"{each.name}: {each.text}" for each in explained.functions if each.served]
    return {**row, "path": "; ".join(dict.fromkeys(told))}


def _is_rounded(case: Case) -> bool:
    """Return whether patched results are hardly farther from those in doubles than PyG's own results are."""
    theirs = one_pass(case)()
    with onehop.patch():
        ours = one_pass(case)()
    in_doubles = Case(copy.deepcopy(case.module).double(), tuple(map(_doubled, case.operands)))
    exact = one_pass(in_doubles)()
    return _farthest(ours, exact) <= 2 * _farthest(theirs, exact)


def _doubled(operand: Any) -> Any:
    if not isinstance(operand, Tensor) or not operand.is_floating_point():
        return operand
    return operand.detach().double().requires_grad_(operand.requires_grad)


def _farthest(results: list[Tensor], exact: list[Tensor]) -> float:
    """The largest difference of all results, relative to the largest entry of each."""
    pairs = zip(results, exact, strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)


def rows(options: Options) -> Iterator[Row]:
    """Measures every case."""
    for name in options.cases:
        order = {"case": name, "rounds": options.rounds, "threads": options.threads}
        maker = CASES[name]
        yield {"case": name, "package": maker.package, "size": maker.size, **harness.apart(measured, order)}


_TIMES = "layer or model | case; of | package; size; PyG, ms | pyg_s | ms; onehop, ms | onehop_s | ms; "
SHOWN = columns.of(f"{_TIMES} over PyG | ratio/median | x; what runs | path")


def content(document: Row) -> str:
    """What the page shows of a file of results: the machine, and a table of the packages that were there."""
    there = [row for row in document["results"] if "missing" not in row]
    return f"{machine_line(document['stamp'])}\n\n{Table(SHOWN, there).markdown()}"


def judged(options: Options, rows: list[Row]) -> dict[str, int]:
    """Writes the page, if one was named, and counts what differs."""
    there = [row for row in rows if "missing" not in row]
    if options.page is not None:
        text = content({"stamp": stamp(), "results": there})
        options.page.write_text(replace_between(options.page.read_text(), text, page=options.page))
    return {"different": sum(row["wrong"] for row in there)}


BENCHMARK = Benchmark(
    "bench packages",
    rows,
    f"{_TIMES} over PyG | ratio | gain; what runs | path; not installed | missing;  | wrong | wrong",
    {
        "cases": Option(tuple(CASES), known=tuple(CASES)),
        "page": Option(None, "the document whose table is written", kind=Path),
    },
    rounds=5,
    finish=judged,
)

if __name__ == "__main__":
    sys.exit(any(row.get("wrong") for row in BENCHMARK.main()))
