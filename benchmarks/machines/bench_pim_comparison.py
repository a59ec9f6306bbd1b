"""Inference of whole models: tuned Parallelism Fusion beside GraNDe-style and SparseP-style plans, and torch.

    python benchmarks/machines/bench_pim_comparison.py [--graphs reddit,proteins,arxiv] [--scale 1]
        [--width 256] [--layers 2] [--dtype int32] [--json benchmarks/results/machines/pim_comparison.json]

Aggregation is simulated, combination is measured on the machine that this runs on and is the same for all
plans. That the plans give the right sums is checked on a small part of the same twin first. "published" means
Parallelism Fusion with the kernels and the merge of PyGim's repository, "improved" with unit-weight kernels,
kept buffers, and a merge by as many threads as ``--merge-threads``. Combination can be measured before, while
nothing else runs: ``--only-combination --json FILE``, then ``--combination FILE``.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from onehop import Graph, MachineMemoryError, datasets
from onehop.bench import command, near_bank
from onehop.machines.pim import Machine, PimPlan, PimReport, host, prior_art, tune

# What the paper's abstract states, for orientation: mean and best, over prior work on the same hardware.
PAPER = {"speedup_mean": 4.38, "speedup_best": 7.20, "energy_mean": 2.86, "energy_best": 3.68}
CHECK_SCALE = {"reddit": 0.03, "proteins": 0.05, "arxiv": 0.05, "pubmed": 0.5}


def load(name: str, scale: float) -> Graph:
    """The twin's graph, without features."""
    found = datasets.twin(name, scale=scale, features=False)
    return Graph.from_edge_index(found.edge_index, found.num_nodes)


def plans(machine: Machine, graph: Graph, width: int, dtype: str, threads: int) -> dict[str, PimPlan | None]:
    """The plans that are compared; None where none fits."""
    kernel = machine.kernel(prior_art.PUBLISHED, dtype)
    improved = PimPlan(unit_weights=True, merge_threads=threads, reuse_buffers=True, merge_order="row")
    return {
        "published": tune(machine, graph, width, dtype, base=prior_art.PUBLISHED).plan,
        "improved": tune(machine, graph, width, dtype, base=improved).plan,
        "grande": prior_art.grande(machine.config),
        "sparsep": prior_art.best_sparsep(machine.config, machine.shapes(graph), width, kernel),
    }


def check(machine: Machine, name: str, width: int, dtype: str, threads: int) -> None:
    """All plans give the exact sums on a small part of the twin."""
    graph = load(name, CHECK_SCALE[name])
    x = torch.randint(-8, 8, (graph.num_src, width), generator=torch.Generator().manual_seed(0))
    x = x.to(getattr(torch, dtype))
    for label, plan in plans(machine, graph, width, dtype, threads).items():
        if plan is not None:
            out, _ = machine.aggregate(graph, x, plan)
            error = host.largest_error(graph, x, None, "sum", out)
            if error:
                raise SystemExit(f"{name}, {label}: wrong by {error}")


def reports(machine: Machine, graph: Graph, width: int, dtype: str, threads: int) -> dict[str, PimReport]:
    """What one aggregation takes under each plan that fits."""
    found = {}
    for label, plan in plans(machine, graph, width, dtype, threads).items():
        if plan is None:
            continue
        try:
            found[label] = machine.simulate(graph, width, plan, dtype)
        except MachineMemoryError as error:
            print(f"  {label}: {error}")
    return found


def combination(width: int, layers: int) -> dict[str, Any]:
    """Microseconds of combination for a row, by model: short, so that nothing else need run meanwhile."""
    x = torch.rand(32_768, width)
    found = {}
    for kind in near_bank.KINDS:
        network = near_bank.Network(kind, width, width, width, layers).eval()
        found[kind] = near_bank.combination_ms(network, x, rounds=7) * 1e3 / x.size(0)
    return {"row_us": found, "width": width, "layers": layers}


def torch_times(graph: Graph, x: torch.Tensor, dtype: str) -> dict[str, float]:
    """Milliseconds of torch's own product here, by dtype; of integers, which are slow, for small graphs."""
    found = {"float32": host.measured_ns(graph, x, rounds=1) / 1e6}
    if graph.num_edges < 20_000_000:
        found[dtype] = host.measured_ns(graph, x.to(getattr(torch, dtype)), rounds=1) / 1e6
    return found


def compare(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Every graph and model."""
    machine, cases = Machine(), []
    layers, width = options.layers, options.width
    rows_us = None if options.combination is None else json.loads(options.combination.read_text())["row_us"]
    known = {}
    if options.torch is not None:
        known = {case["graph"]: case["torch_ms"] for case in json.loads(options.torch.read_text())["cases"]}
    for name in options.graphs.split(","):
        check(machine, name, width, options.dtype, options.merge_threads)
        graph = load(name, options.scale)
        took = reports(machine, graph, width, options.dtype, options.merge_threads)
        for label, report in took.items():
            phases = ", ".join(f"{p} {t / 1e6:.1f}" for p, t in report.phases_ns.items())
            say(f"{name} {label}: {report.total_ms:.1f} ms ({phases}), {report.energy_mj / 1e3:.2f} J")
            say(f"    {report.plan}")
        x = torch.rand(graph.num_src, width)
        torch_ms = known[name] if name in known else torch_times(graph, x, options.dtype)
        say(f"{name}: torch on this host {torch_ms} ms")
        for kind in near_bank.KINDS:
            network = near_bank.Network(kind, width, width, width, layers).eval()
            host_ms = (
                near_bank.combination_ms(network, x)
                if rows_us is None
                else rows_us[kind] * graph.num_dst / 1e3
            )
            host_mj = host_ms * machine.config.power.host_w
            whole = {
                label: {
                    "ms": host_ms + layers * report.total_ms,
                    "mj": host_mj + layers * report.energy_mj,
                    "aggregation_ms": layers * report.total_ms,
                }
                for label, report in took.items()
            }
            prior = [label for label in ("grande", "sparsep") if label in whole]
            better = min(prior, key=lambda label: whole[label]["ms"])
            ratios = {
                label: {
                    "speedup": whole[better]["ms"] / whole[label]["ms"],
                    "aggregation_speedup": whole[better]["aggregation_ms"] / whole[label]["aggregation_ms"],
                    "energy": whole[better]["mj"] / whole[label]["mj"],
                }
                for label in ("published", "improved")
            }
            say(
                f"{name} {kind}: combination {host_ms:.0f} ms; over {better}: "
                + "; ".join(
                    f"{label} {r['speedup']:.2f}x (aggregation {r['aggregation_speedup']:.2f}x), energy "
                    f"{r['energy']:.2f}x"
                    for label, r in ratios.items()
                )
            )
            cases.append(
                {
                    "graph": name,
                    "model": kind,
                    "combination_ms": host_ms,
                    "whole": whole,
                    "better_prior": better,
                    "ratios": ratios,
                    "torch_ms": torch_ms,
                    "aggregation": {label: report.as_dict() for label, report in took.items()},
                }
            )
    summary = {
        f"{label} {what}": {
            "mean": statistics.geometric_mean(case["ratios"][label][what] for case in cases),
            "best": max(case["ratios"][label][what] for case in cases),
        }
        for label in ("published", "improved")
        for what in ("speedup", "aggregation_speedup", "energy")
    }
    for name, entry in summary.items():
        say(f"{name}: mean {entry['mean']:.2f}x, best {entry['best']:.2f}x")
    return {
        "cases": cases,
        "summary": summary,
        "paper": PAPER,
        "options": {k: v for k, v in vars(options).items() if not isinstance(v, Path)},
    }


def main() -> None:
    """Prints and writes everything."""
    parser = command.parser(__doc__)
    parser.add_argument("--graphs", default="reddit,proteins,arxiv")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dtype", default="int32")
    parser.add_argument("--merge-threads", type=int, default=16)
    parser.add_argument("--combination", type=Path, help="what --only-combination wrote")
    parser.add_argument("--torch", type=Path, help="take torch's times from what this wrote before")
    parser.add_argument("--only-combination", action="store_true", help="measure that, and nothing else")
    options = command.read(parser)
    if options.only_combination:
        found = combination(options.width, options.layers)
        print(found)
        command.write(options, "benchmarks/machines/bench_pim_comparison.py --only-combination", found)
        return
    found = compare(options, print)
    command.write(options, "benchmarks/machines/bench_pim_comparison.py", found)


if __name__ == "__main__":
    main()
