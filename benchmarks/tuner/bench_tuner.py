"""What tuning gains, what its model knows, and what it costs.

    python -m benchmarks.tuner.bench_tuner gain [--graphs arxiv,road] [--widths 32,128] [--budget 5]
    python -m benchmarks.tuner.bench_tuner order [--graph twin:products] [--scale 0.1] [--widths 32,64]
    python -m benchmarks.tuner.bench_tuner exhaustive [--graphs road] [--widths 64]
    python -m benchmarks.tuner.bench_tuner codegen [--graphs arxiv,road] [--widths 16,64]
    python -m benchmarks.tuner.bench_tuner field --field prefetch_hint --values L2,L1 [--graphs cora]
    python -m benchmarks.tuner.bench_tuner store

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

import dataclasses
import itertools
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch

import onehop
from benchmarks.harness import Benchmark, Option, Options, Row, run_part
from onehop import Graph, datasets, native
from onehop.backends.cpu import CpuBackend
from onehop.bench.graphs import workload
from onehop.bench.timing import Times, geometric_mean, interleave, measure_once
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


def default_of(graph: Graph, width: int) -> CpuPlan:
    """The plan without tuning."""
    (operation,) = operations("aggregate", "sum", False)
    return candidates.start(graph, operation, width, torch.float32)


def search(graph: Graph, width: int, options: Options, **how: Any) -> Any:
    """A search for the forward sum, which leaves nothing behind."""
    budget = options.budget
    return onehop.tune(graph, width, backward=False, budget_s=budget, keep=False, again=True, **how)


def models_choice(graph: Graph, width: int, fields: tuple[str, ...] = FIELDS) -> tuple[CpuPlan, Any]:
    """The plan that the cost model prefers, and the model."""
    (operation,) = operations("aggregate", "sum", False)
    case = tuned.case_of(graph, "sum", False, width, torch.float32)
    task = Task(graph, case, operation, torch.float32)
    tactics = CpuTarget("aggregate", "sum", False).tactics(task, fields)
    finish(make_orders(graph, tactics.axes, tactics.make_order, Budget(3600), lambda: None))
    return tactics.proposals()[0], tactics.model


def cases(options: Options) -> Iterator[tuple[str, Graph, int]]:
    """Each graph at each width."""
    for name, width in itertools.product(options.graphs, options.widths):
        yield name, graph_of(name), width


def as_json(times: dict[str, Times]) -> Row:
    """Times as rows have them."""
    return {key: value.to_dict() for key, value in times.items()}


def gain(options: Options) -> Iterator[Row]:
    """Default, model, tuned."""
    for name, graph, width in cases(options):
        result = search(graph, width, options)
        (entry,) = result.entries
        chosen, model = models_choice(graph, width)
        plans = {
            "default": default_of(graph, width), "plain": CpuPlan(), "tuned": result.plan, "model": chosen,
            "tuned, no order": dataclasses.replace(result.plan, ordering="none"),
        }  # fmt: skip
        # Plans that are the same are measured once: between two measurements the difference is the machine's.
        distinct = interleave(calls(graph, width, {str(plan): plan for plan in plans.values()}), ROUNDS)
        times = {key: distinct[str(plan)] for key, plan in plans.items()}
        medians = {key: value.median_s for key, value in times.items()}
        yield {
            "graph": name, "width": width, "plan": result.plan.to_dict(), "model_plan": chosen.to_dict(),
            "seconds": as_json(times),
            "over_default": medians["default"] / medians["tuned"],
            "over_default_without_order": medians["default"] / medians["tuned, no order"],
            "over_plain": medians["plain"] / medians["tuned"],
            "model_behind_best": medians["model"] / min(medians.values()),
            "predicted_s": {key: model.predict(plan) for key, plan in plans.items()},
            "tuning_s": result.seconds, "ordering_s": entry.ordering_s, "break_even": entry.break_even,
            "tried": entry.tried,
        }  # fmt: skip


def summary(options: Options, rows: list[Row]) -> Row:
    """Means of all cases."""

    def mean(key: str) -> float:
        return geometric_mean(row[key] for row in rows)

    found = {
        "tuned_over_default_geomean": mean("over_default"),
        "tuned_over_default_least": min(row["over_default"] for row in rows),
        "without_order_geomean": mean("over_default_without_order"),
        "tuned_over_plain_geomean": mean("over_plain"),
        "model_behind_best_mean": statistics.mean(row["model_behind_best"] for row in rows),
    }
    return {"summary": found}


def order(options: Options) -> Iterator[Row]:
    """Tuned with orders over tuned without."""
    dataset = datasets.twin(options.graph.removeprefix("twin:"), scale=options.scale, features=False)
    graph = Graph.from_edge_index(dataset.edge_index, num_nodes=dataset.num_nodes)
    options.noted |= {"graph": dataset.name, "nodes": graph.num_dst, "edges": graph.num_edges}
    for width in options.widths:
        without = search(graph, width, options, fields=[f for f in FIELDS if f != "ordering"])
        result = search(graph, width, options)
        (entry,) = result.entries
        times = interleave(calls(graph, width, {"without": without.plan, "with": result.plan}), ROUNDS)
        saved = times["without"].median_s - times["with"].median_s
        yield {
            "width": width, "without": without.plan.to_dict(), "with": result.plan.to_dict(),
            "seconds": as_json(times), "ratio": times["without"].median_s / times["with"].median_s,
            "ordering_s": entry.ordering_s, "break_even": entry.ordering_s / saved if saved > 0 else None,
        }  # fmt: skip


def exhaustive(options: Options) -> Iterator[Row]:
    """Every plan of three fields, measured; what search and model chose among them."""
    fields = ("prefetch", "edges_per_item", "column_tile")
    (operation,) = operations("aggregate", "sum", False)
    threads, vector = native.threads(), native.extension.vector_bytes()
    for name, graph, width in cases(options):
        result = search(graph, width, options, fields=fields)
        chosen, _ = models_choice(graph, width, fields)
        default = default_of(graph, width)
        axes = candidates.axes(graph, operation, width, torch.float32, threads, vector, False)
        grid = [
            dataclasses.replace(default, **dict(zip(fields, values, strict=True)))
            for values in itertools.product(*(axes.get(f, (getattr(default, f),)) for f in fields))
        ]
        first = interleave(calls(graph, width, {str(plan): plan for plan in grid}), 2)
        ranked = sorted(grid, key=lambda plan: first[str(plan)].min_s)
        finalists = {str(plan): plan for plan in ranked[:4]} | {"search": result.plan, "model": chosen}
        last = {key: value.median_s for key, value in interleave(calls(graph, width, finalists), 15).items()}
        best = min(last.values())
        yield {
            "graph": name, "width": width, "plans": len(grid), "best_s": best,
            "search": last["search"] / best, "model": last["model"] / best,
        }  # fmt: skip


def codegen(options: Options) -> Iterator[Row]:
    """Generated kernels against built-in ones, other fields alike; 1.0 where none won."""
    for name, graph, width in cases(options):
        result = search(graph, width, options, codegen=True)
        built_in = dataclasses.replace(result.plan, generated="")
        times = interleave(calls(graph, width, {"built-in": built_in, "generated": result.plan}), ROUNDS)
        ratio = times["built-in"].median_s / times["generated"].median_s if result.plan.generated else 1.0
        yield {
            "graph": name, "width": width, "plan": result.plan.to_dict(), "told": result.entries[0].codegen,
            "seconds": as_json(times), "ratio": ratio, "tuning_s": result.seconds,
        }  # fmt: skip


def field(options: Options) -> Iterator[Row]:
    """The default plan with each value of one field: how many times faster than with the first."""
    values = [int(text) if text.isdigit() else text for text in options.values]
    for name, graph, width in cases(options):
        default = default_of(graph, width)
        plans = {str(value): dataclasses.replace(default, **{options.field: value}) for value in values}
        times = interleave(calls(graph, width, plans), 2 * ROUNDS)
        first = times[str(values[0])].median_s
        ratios = {key: first / value.median_s for key, value in times.items()}
        yield {"graph": name, "width": width, "ratios": ratios, "seconds": as_json(times)}


def store(options: Options) -> Iterator[Row]:
    """The first lookup of a process: reading the file; and the later ones."""
    graph = workload("cora").graph
    plan = CpuPlan(prefetch=3)
    own = [tuned.case_of(graph, "sum", bool(i % 2), 16 + i, torch.float32) for i in range(10)]
    others = [f"{n}x{n}{own[0].graph[own[0].graph.index(' edges') :]}" for n in range(1, 20)]
    every = own + [dataclasses.replace(case, graph=key) for key in others for case in own]

    def lookup() -> None:
        assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32) == plan

    # In a folder of its own: these plans were not measured.
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, ONEHOP_CACHE_DIR=folder):
        tuned.forget()
        tuned.install([tuned.Tuned(case, plan, 1e-3, 1e-3, 2e-3) for case in every])
        loads = []
        for _ in range(ROUNDS):
            tuned.forget()
            loads.append(measure_once(lookup))
        found = {"load_s": statistics.median(loads), "lookup_s": measure_once(lookup, 10_000)}
    options.noted |= found
    yield found


_GRAPHS = {
    "graphs": ("arxiv", "reddit-mini", "road", "cora"), "widths": (16, 32, 64, 128, 256),
    "budget": Option(10.0, "seconds of a search"),
}  # fmt: skip
_ORDER = {"graph": "twin:products", "scale": 0.1}
_FIELD = {"field": "prefetch_hint", "values": ("L2", "L1")}


def _part(rows: Any, text: str, options: Mapping[str, Option] = _GRAPHS, **more: Any) -> Benchmark:
    return Benchmark(rows.__name__, rows, text, options, key="cases", doc=rows.__doc__, **more)


PARTS = {
    "gain": _part(
        gain,
        "graph; width; default, ms | seconds/default/median_s | ms; tuned | over_default | x; "
        "without order | over_default_without_order | x; over plain | over_plain | x; "
        "model | model_behind_best | {:.2f}; s | tuning_s | {:.1f}; tried; order | plan/ordering; "
        "order, s | ordering_s | {:.2f}; pays after | break_even | {:.0f}",
        finish=summary,
        notes=lambda options, rows: [str(options.noted["summary"])],
    ),
    "order": _part(
        order,
        "width; without, ms | seconds/without/median_s | ms; with, ms | seconds/with/median_s | ms; "
        "gain | ratio | x; order | with/ordering; made in, s | ordering_s | {:.2f}; "
        "pays after | break_even | {:.0f}",
        {**_GRAPHS, **_ORDER},
    ),
    "exhaustive": _part(
        exhaustive,
        "graph; width; plans; best, ms | best_s | ms; search | search | {:.3f}; model | model | {:.3f}",
    ),
    "codegen": _part(
        codegen,
        "graph; width; built-in, ms | seconds/built-in/median_s | ms; gain | ratio | {:.3f}; "
        "s | tuning_s | {:.1f}; told",
        notes=lambda options, rows: [f"geometric mean {geometric_mean(row['ratio'] for row in rows):.3f}x"],
    ),
    "field": _part(field, "graph; width; over the first | ratios", {**_GRAPHS, **_FIELD}, kept=("field",)),
    "store": _part(store, "first lookup of 200 plans, ms | load_s | ms; later, ms | lookup_s | ms", {}),
}

if __name__ == "__main__":
    run_part(__doc__, PARTS)
