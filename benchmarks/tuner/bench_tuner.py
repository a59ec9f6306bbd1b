"""What tuning gains, what its model knows, and what it costs.

    python benchmarks/tuner/bench_tuner.py gain [--graphs arxiv,road] [--widths 32,128] [--budget 5]
    python benchmarks/tuner/bench_tuner.py order [--graph twin:products] [--scale 0.1] [--widths 32,64]
    python benchmarks/tuner/bench_tuner.py exhaustive [--graphs road] [--widths 64]
    python benchmarks/tuner/bench_tuner.py codegen [--graphs arxiv,road] [--widths 16,64]
    python benchmarks/tuner/bench_tuner.py field --field index --values int32,int16 [--graphs reddit-mini]
    python benchmarks/tuner/bench_tuner.py store

All take ``--threads N`` and ``--json FILE``.

``gain``: default plan, plain plan (``CpuPlan()``, which knows neither graph nor machine), the model's own
choice without any measurement, and the tuned plan, each forward alone, raced in turns after the search is
over, results compared first; plans that are the same are measured once. ``order``: the plan tuned with every
field free against the one tuned with the order of rows left as it is. ``exhaustive``: every combination of
distance, piece and tile, against what the search and the model found among them. ``codegen``: the plan
with a generated kernel, where one won, against the same with the built-in one. ``field``: the default plan
with each value of one field, raced in turns. ``store``: reading a file of
200 plans of 20 graphs.

Figures are medians of the rounds of one run; ratios are default over tuned: above 1, tuning won.
"""

import argparse
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import onehop
from onehop import Graph, datasets, native
from onehop.backends.cpu import CpuBackend
from onehop.bench import command
from onehop.bench.graphs import workload
from onehop.bench.timing import geometric_mean, interleave
from onehop.calls import Aggregate, on
from onehop.plans import CpuPlan, tuned
from onehop.tuner import candidates
from onehop.tuner.cpu import CpuTarget
from onehop.tuner.operations import FIELDS, operations
from onehop.tuner.run import Task, make_orders
from onehop.tuner.search import Budget, finish

ROUNDS = 9
# A million nodes of which the 8,192 most read answer four reads of ten: x exceeds the caches from width 8 on.
HUBS = (1_000_000, 10_000_000, 0.9)


def graph_of(name: str) -> Graph:
    """A graph of the operators' benchmarks; or "hubs", a Chung-Lu graph with weights rank^-0.9."""
    if name != "hubs":
        return workload(name).graph
    nodes, edges, exponent = HUBS
    return Graph.from_edge_index(datasets.chung_lu(nodes, edges, exponent), num_nodes=nodes)


def calls(graph: Graph, width: int, plans: dict[str, CpuPlan]) -> dict[str, Callable[[], torch.Tensor]]:
    """The sum with each plan, after all have given the same result."""
    x = torch.randn(graph.num_src, width, generator=torch.Generator().manual_seed(1))

    def call(plan: CpuPlan) -> Callable[[], torch.Tensor]:
        backend, sum_of = CpuBackend(plan), on(graph, Aggregate, x=x)
        return lambda: backend.run(graph, sum_of)

    ready = {name: call(plan) for name, plan in plans.items()}
    first = ready[next(iter(ready))]()
    for other in ready.values():
        torch.testing.assert_close(other(), first, rtol=1e-4, atol=1e-3)
    return ready


def models_choice(graph: Graph, width: int, fields: tuple[str, ...] = FIELDS) -> tuple[CpuPlan, Any]:
    """The plan that the cost model prefers, and the model."""
    (operation,) = operations("aggregate", "sum", False)
    case = tuned.case_of(graph, "sum", False, width, torch.float32)
    task = Task(graph, case, operation, torch.float32)
    tactics = CpuTarget("aggregate", "sum", False).tactics(task, fields)
    finish(make_orders(graph, tactics.axes, tactics.make_order, Budget(3600), lambda: None))
    return tactics.proposals()[0], tactics.model


def gain(options: argparse.Namespace) -> dict[str, Any]:
    """Default, model, tuned."""
    rows = []
    for name, width in itertools.product(options.graphs, options.widths):
        graph = graph_of(name)
        result = onehop.tune(graph, width, backward=False, budget_s=options.budget, keep=False, again=True)
        (entry,) = result.entries
        (operation,) = operations("aggregate", "sum", False)
        chosen, model = models_choice(graph, width)
        default = candidates.start(graph, operation, width, torch.float32)
        unordered = dataclasses.replace(result.plan, ordering="none")
        plans = {
            "default": default, "plain": CpuPlan(), "tuned": result.plan, "model": chosen,
            "tuned, no order": unordered,
        }  # fmt: skip
        # Plans that are the same are measured once: between two measurements the difference is the machine's.
        distinct = interleave(calls(graph, width, {str(plan): plan for plan in plans.values()}), ROUNDS)
        times = {key: distinct[str(plan)] for key, plan in plans.items()}
        medians = {key: value.median_s for key, value in times.items()}
        best = min(medians.values())
        rows.append(
            {
                "graph": name, "width": width, "plan": result.plan.to_dict(), "model_plan": chosen.to_dict(),
                "seconds": {key: value.to_dict() for key, value in times.items()},
                "over_default": medians["default"] / medians["tuned"],
                "over_default_without_order": medians["default"] / medians["tuned, no order"],
                "over_plain": medians["plain"] / medians["tuned"],
                "model_behind_best": medians["model"] / best,
                "predicted_s": {key: model.predict(plan) for key, plan in plans.items()},
                "tuning_s": result.seconds, "ordering_s": entry.ordering_s, "break_even": entry.break_even,
                "tried": entry.tried,
            }
        )  # fmt: skip
        r = rows[-1]
        print(
            f"{name:12} {width:4}  default {medians['default'] * 1e3:7.2f} ms  "
            f"tuned {r['over_default']:.2f}x  without order {r['over_default_without_order']:.2f}x  "
            f"over plain {r['over_plain']:.2f}x  "
            f"model {r['model_behind_best']:.2f} of best  "
            f"{result.seconds:4.1f} s, {entry.tried} plans  {result.plan.ordering}"
            + (f" ({entry.ordering_s:.2f} s, pays after {entry.break_even})" if entry.ordering_s else ""),
            flush=True,
        )
    summary = {
        "tuned_over_default_geomean": geometric_mean(r["over_default"] for r in rows),
        "tuned_over_default_least": min(r["over_default"] for r in rows),
        "without_order_geomean": geometric_mean(r["over_default_without_order"] for r in rows),
        "tuned_over_plain_geomean": geometric_mean(r["over_plain"] for r in rows),
        "model_behind_best_mean": statistics.mean(r["model_behind_best"] for r in rows),
    }
    print(summary)
    return {"cases": rows, "summary": summary}


def order(options: argparse.Namespace) -> dict[str, Any]:
    """Tuned with orders over tuned without."""
    dataset = datasets.twin(options.graph.removeprefix("twin:"), scale=options.scale, features=False)
    graph = Graph.from_edge_index(dataset.edge_index, num_nodes=dataset.num_nodes)
    print(dataset.name, graph, flush=True)
    rows = []
    for width in options.widths:
        common = {"backward": False, "budget_s": options.budget, "keep": False, "again": True}
        without = onehop.tune(graph, width, fields=[f for f in FIELDS if f != "ordering"], **common)
        result = onehop.tune(graph, width, **common)
        (entry,) = result.entries
        times = interleave(calls(graph, width, {"without": without.plan, "with": result.plan}), ROUNDS)
        saved = times["without"].median_s - times["with"].median_s
        rows.append(
            {
                "width": width, "without": without.plan.to_dict(), "with": result.plan.to_dict(),
                "seconds": {key: value.to_dict() for key, value in times.items()},
                "ratio": times["without"].median_s / times["with"].median_s, "ordering_s": entry.ordering_s,
                "break_even": entry.ordering_s / saved if saved > 0 else None,
            }
        )  # fmt: skip
        r = rows[-1]
        even = "never" if r["break_even"] is None else f"after {r['break_even']:.0f} calls"
        print(
            f"width {width:4}  without {times['without'].median_s * 1e3:7.1f} ms  with "
            f"{times['with'].median_s * 1e3:7.1f} ms  {r['ratio']:.2f}x  {result.plan.ordering}, made in "
            f"{entry.ordering_s:.2f} s, pays {even}",
            flush=True,
        )
    return {"graph": dataset.name, "nodes": graph.num_dst, "edges": graph.num_edges, "cases": rows}


def exhaustive(options: argparse.Namespace) -> dict[str, Any]:
    """Every plan of three fields, measured; what search and model chose among them."""
    fields = ("prefetch", "edges_per_item", "column_tile")
    rows = []
    for name, width in itertools.product(options.graphs, options.widths):
        graph = graph_of(name)
        result = onehop.tune(
            graph, width, fields=fields, backward=False, budget_s=options.budget, keep=False, again=True
        )
        chosen, _ = models_choice(graph, width, fields)
        (operation,) = operations("aggregate", "sum", False)
        default = candidates.start(graph, operation, width, torch.float32)
        axes = candidates.axes(
            graph, operation, width, torch.float32, native.threads(), native.extension.vector_bytes(), False
        )
        grid = [
            dataclasses.replace(default, **dict(zip(fields, values, strict=True)))
            for values in itertools.product(*(axes.get(f, (getattr(default, f),)) for f in fields))
        ]
        first = interleave(calls(graph, width, {str(plan): plan for plan in grid}), 2)
        ranked = sorted(grid, key=lambda plan: first[str(plan)].min_s)
        finalists = {str(plan): plan for plan in ranked[:4]} | {"search": result.plan, "model": chosen}
        last = {key: value.median_s for key, value in interleave(calls(graph, width, finalists), 15).items()}
        best = min(last.values())
        rows.append(
            {"graph": name, "width": width, "plans": len(grid), "best_s": best,
             "search": last["search"] / best, "model": last["model"] / best}
        )  # fmt: skip
        print(
            f"{name:12} {width:4}  {len(grid)} plans, best {best * 1e3:.2f} ms, "
            f"search {last['search'] / best:.3f}, model {last['model'] / best:.3f}",
            flush=True,
        )
    return {"cases": rows}


def codegen(options: argparse.Namespace) -> dict[str, Any]:
    """Generated kernels against built-in ones, other fields alike; 1.0 where none won."""
    rows = []
    for name, width in itertools.product(options.graphs, options.widths):
        graph = graph_of(name)
        result = onehop.tune(
            graph, width, backward=False, budget_s=options.budget, keep=False, again=True, codegen=True
        )
        (entry,) = result.entries
        built_in = dataclasses.replace(result.plan, generated="")
        times = interleave(calls(graph, width, {"built-in": built_in, "generated": result.plan}), ROUNDS)
        ratio = times["built-in"].median_s / times["generated"].median_s if result.plan.generated else 1.0
        rows.append(
            {
                "graph": name, "width": width, "plan": result.plan.to_dict(), "told": entry.codegen,
                "seconds": {key: value.to_dict() for key, value in times.items()}, "ratio": ratio,
                "tuning_s": result.seconds,
            }
        )  # fmt: skip
        print(
            f"{name:12} {width:4}  built-in {times['built-in'].median_s * 1e3:7.2f} ms  {ratio:.3f}x  "
            f"{result.seconds:4.1f} s  {entry.codegen}",
            flush=True,
        )
    print(f"geometric mean {geometric_mean(row['ratio'] for row in rows):.3f}x")
    return {"cases": rows}


def field(options: argparse.Namespace) -> dict[str, Any]:
    """The default plan with each value of one field: how many times faster than with the first."""
    values = [int(text) if text.isdigit() else text for text in options.values]
    rows = []
    for name, width in itertools.product(options.graphs, options.widths):
        graph = graph_of(name)
        (operation,) = operations("aggregate", "sum", False)
        default = candidates.start(graph, operation, width, torch.float32)
        plans = {str(value): dataclasses.replace(default, **{options.field: value}) for value in values}
        times = interleave(calls(graph, width, plans), 2 * ROUNDS)
        first = times[str(values[0])].median_s
        ratios = {key: first / value.median_s for key, value in times.items()}
        rows.append(
            {
                "graph": name, "width": width, "ratios": ratios,
                "seconds": {key: value.to_dict() for key, value in times.items()},
            }
        )  # fmt: skip
        told = "  ".join(f"{key} {ratio:.3f}x" for key, ratio in ratios.items())
        print(f"{name:12} {width:4}  {first * 1e3:7.2f} ms  {told}", flush=True)
    return {"field": options.field, "cases": rows}


def store(options: argparse.Namespace) -> dict[str, Any]:
    """The first lookup of a process: reading the file; and the later ones."""
    graph = workload("cora").graph
    plan = CpuPlan(prefetch=3)
    own = [tuned.case_of(graph, "sum", bool(i % 2), 16 + i, torch.float32) for i in range(10)]
    others = [f"{n}x{n}{own[0].graph[own[0].graph.index(' edges') :]}" for n in range(1, 20)]
    cases = own + [dataclasses.replace(case, graph=key) for key in others for case in own]
    tuned.install([tuned.Tuned(case, plan, 1e-3, 1e-3, 2e-3) for case in cases])
    loads = []
    for _ in range(ROUNDS):
        tuned.forget()
        begin = time.perf_counter()
        assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32) == plan
        loads.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    for _ in range(10_000):
        CpuBackend().plan_of_sum(graph, False, 16, torch.float32)
    lookup = (time.perf_counter() - begin) / 10_000
    print(f"first lookup, 200 plans: {statistics.median(loads) * 1e3:.2f} ms; later: {lookup * 1e6:.2f} us")
    return {"load_s": statistics.median(loads), "lookup_s": lookup}


PARTS = {
    "gain": gain, "order": order, "exhaustive": exhaustive, "codegen": codegen, "field": field, "store": store
}  # fmt: skip


def main() -> None:
    """Runs one part."""
    parser = command.parser(__doc__, threads=True)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--field", default="index")
    parser.add_argument("--values", type=command.names, default="int32,int16")
    parser.add_argument("--graphs", type=command.names, default="arxiv,reddit-mini,road,cora")
    parser.add_argument("--graph", default="twin:products")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--widths", type=command.integers, default="16,32,64,128,256")
    parser.add_argument("--budget", type=float, default=10.0)
    options = command.read(parser)
    content = PARTS[options.part](options)
    command.write(options, options.part, content)


if __name__ == "__main__":
    main()
