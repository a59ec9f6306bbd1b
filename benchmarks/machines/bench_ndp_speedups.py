"""Aggregation on the near-rank machine against the host and prior machines, on twins of the paper's graphs.

    python -m benchmarks.machines.bench_ndp_speedups [--scale 1] [--hidden 256] [--seeds 1] [--json FILE]

Three layers, 16 and 32 ranks, both figures of tFAW, re-tiled and in index order; and, for 16 ranks at the
preset's tFAW, re-tiled, several clocks of the units. Published for the originals:
3.01x on average and 4.00x at best over the host, 1.69x and 1.98x over the best prior machine; end to end
1.91x and 3.02x. The paper's machine is unknown in most of what matters, and nothing here was chosen to come
near these figures.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks import columns
from benchmarks.harness import Benchmark, Options, Row
from benchmarks.machines.ndp_twins import GRAPHS, structure
from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan, by_clock, whole_report
from onehop.reproduce.grande import PAPER, Case
from onehop.tables import Table

PUBLISHED = {
    key: dict(zip(("mean", "best"), PAPER[ratio], strict=True))
    for key, ratio in (("over_baseline", "host"), ("over_prior", "prior"), ("end_to_end", "serial"))
}
CASE = ("machine", "faw", "llc_mib", "retile")
CASES = [
    Case(machine, faw, retile=retile, llc_mib=llc_mib)
    for machine in ("grande_16", "grande_32")
    for faw, llc_mib in (("preset", 0.0), ("sheet", 0.0), ("preset", 27.5))
    for retile in ("rows", "index")
]


def widths(name: str, hidden: int) -> list[int]:
    """Columns that each of three layers aggregates, aggregation coming first."""
    return [GRAPHS[name].features, hidden, hidden]


def clocks(name: str, graph: Graph, hidden: int, seed: int) -> list[Row]:
    """Gains of one graph at several clocks of the units."""
    points = by_clock(Machine("grande_16"), graph, widths(name, hidden), NdpPlan())
    return [{"graph": name, "seed": seed, **asdict(point)} for point in points]


def measure(name: str, graph: Graph, hidden: int, seed: int) -> Iterator[Row]:
    """All cases of one graph."""
    machines = {case.machine: Machine(case.machine) for case in CASES}
    for case in CASES:
        layers = case.layers(machines[case.machine], graph, widths(name, hidden))
        whole = whole_report(layers)
        time = sum(layer.time_ns for layer in layers)
        base = sum(layer.baseline.time_ns for layer in layers)
        share = GRAPHS[name].aggregation_percent / 100
        yield {
            "graph": name,
            "seed": seed,
            "nodes": graph.num_dst,
            "edges": graph.num_edges,
            **{key: getattr(case, key) for key in CASE},
            "time_ms": time / 1e6,
            "bound_ms": whole["bound_ms"],
            "hidden_share": whole["hidden_share"],
            "over_baseline": base / time,
            "best_layer_over_baseline": max(one.baseline.time_ns / one.time_ns for one in layers),
            "over_prior": whole["speedup_over_prior"],
            "over_overlapped_prior": sum(one.best_overlapped_prior_ns for one in layers) / time,
            "end_to_end_by_published_share": 1 / (1 - share + share * time / base),
            "read_reduction_percent": whole["read_reduction_percent"],
            "mappings": [layer.run.mapping for layer in layers],
            "host_orders": [layer.run.host_order for layer in layers],
            "priors": [layer.best_prior.mapping for layer in layers],
            "bound_by": [layer.run.schedule.bound() for layer in layers],
            "candidates_ms": [layer.candidates_ms() for layer in layers],
            "energy_mj": whole["energy_mj"],
            "baseline_energy_mj": sum(sum(one.baseline.energy_nj.values()) for one in layers) / 1e6,
        }


GAINS = ("over_baseline", "over_prior", "over_overlapped_prior", "end_to_end_by_published_share")


def summary(rows: list[Row]) -> list[Row]:
    """Mean and best over the graphs, of each case."""
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cases.setdefault(tuple(row[key] for key in CASE), []).append(row)
    found = []
    for case, own in cases.items():
        found.append(dict(zip(CASE, case, strict=True)))
        for key in GAINS:
            values = [row[key] for row in own]
            mean = sum(values) / len(values)
            found[-1][key] = {"mean": mean, "best": max(values), "least": min(values)}
    return found


def rows(options: Options) -> Iterator[Row]:
    """Simulates every case of every graph; the gains by clock stay beside the options."""
    options.noted["clocks"] = points = []
    for name in options.graphs:
        for seed in range(options.seeds):
            graph = structure(name, options.scale, seed)
            points += clocks(name, graph, options.hidden, seed)
            yield from measure(name, graph, options.hidden, seed)


SUMMARY = columns.of(
    "machine; faw; llc_mib; retile; "
    + "; ".join(f"{key} | {key}/mean | x; best | {key}/best | x" for key in GAINS)
)
CLOCKS = columns.of(
    "graph; seed; clock_mhz; ms | time_ms | {:.2f}; host | speedup_over_baseline | x; "
    "prior | speedup_over_prior | x; mappings | mappings | list"
)
BENCHMARK = Benchmark(
    "bench ndp speedups",
    rows,
    "graph; seed; machine; faw; llc_mib; retile; ms | time_ms | {:.2f}; host | over_baseline | x; "
    "prior | over_prior | x; overlapped | over_overlapped_prior | x; mappings | mappings | list; "
    "bound, ms | bound_ms | {:.2f}",
    {"scale": 1.0, "hidden": 256, "seeds": 1, "graphs": tuple(GRAPHS)},
    key="cases",
    threads=False,
    kept=("scale", "hidden"),
    more=lambda options, rows: {
        "published": PUBLISHED,
        "summary": summary(rows),
    },
    notes=lambda options, rows: [Table(SUMMARY, summary(rows)), Table(CLOCKS, options.noted["clocks"])],
)

if __name__ == "__main__":
    BENCHMARK.main()
