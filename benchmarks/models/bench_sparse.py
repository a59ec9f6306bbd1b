"""torch's sparse products with torch and under ``patch(only="torch")``: single products, and whole models.

    python -m benchmarks.models.bench_sparse [--parts products,steps] [--graphs cora,gowalla] [--models kipf]
                                             [--rounds 5] [--threads N] [--json FILE]

- ``products``: a random matrix of a data set's size times features, forward, and forward and backward, as COO
  (coalesced and not) and CSR, by ``torch.sparse.mm`` and by ``@``; beside them ``onehop.aggregate`` over the
  same graph.
- ``steps``: training steps of models without layers (:mod:`benchmarks.models.plain_sparse`).

Where torch_sparse is installed (the environment of ``make packages``), its matrices run beside, with cached
transposes. Every case runs in a process of its own, all ways in turns, after results were compared. A ratio
is the median of the rounds' ratios, torch's time over the patched one's. A process of one way alone has
the peaks.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.models import plain_sparse
from onehop.bench.memory import peak_bytes
from onehop.bench.peers.base import import_reason
from onehop.bench.timing import in_turns, measure_once, within

WAYS: Mapping[str, harness.Way] = {"torch": nullcontext, "onehop": partial(onehop.patch, only="torch")}
TURN_S = 0.2
# Steps before a turn's clock starts: kept values are made by then.
WARM = 2


class Size(NamedTuple):
    """The size of a data set's graph, and the width of a model's features."""

    nodes: int
    edges: int
    width: int


GRAPHS = {
    "cora": Size(2_708, 13_264, 16),
    "pubmed": Size(19_717, 108_365, 64),
    "gowalla": Size(70_839, 1_620_256, 64),
    "arxiv": Size(169_343, 2_484_941, 128),
}
MODELS: Mapping[str, Callable[..., plain_sparse.Step]] = {
    "lightgcn-gowalla": partial(plain_sparse.lightgcn, 70_839, 1_027_370),
    "sgl-gowalla": partial(plain_sparse.sgl, 70_839, 1_027_370),
    "kipf-cora": partial(plain_sparse.kipf, 2_708, 5_278, 1_433, 16),
    "kipf-pubmed": partial(plain_sparse.kipf, 19_717, 44_324, 500, 16),
    "kipf-arxiv": partial(plain_sparse.kipf, 169_343, 1_157_799, 128, 128),
    "attention-12k": partial(plain_sparse.attention, 12_000, 120_000),
    "attention-100k": partial(plain_sparse.attention, 100_000, 1_000_000),
}
# torch makes a dense matrix of 40 GB for the gradient to the values.
BEYOND_TORCH = ("attention-100k",)
# The models whose matrices torch_sparse can make.
OF_TORCH_SPARSE = tuple(model for model in MODELS if not model.startswith("attention"))


def products(order: Row) -> list[Row]:
    """The rows of a graph, in this process."""
    torch.set_num_threads(order["threads"])
    size = GRAPHS[order["graph"]]
    at = plain_sparse.random_edges(size.nodes, size.edges)
    generator = torch.Generator().manual_seed(1)
    values = torch.rand(at.size(1), generator=generator)
    x = torch.randn(size.nodes, size.width, generator=generator, requires_grad=True)
    grad = torch.randn(size.nodes, size.width, generator=generator)
    shape = (size.nodes, size.nodes)
    coo = torch.sparse_coo_tensor(at, values, shape).coalesce()
    # With indices of its own, as a program has that keeps one of the two.
    csr = coo.clone().to_sparse_csr()
    mixed = torch.randperm(at.size(1), generator=generator)
    scattered = torch.sparse_coo_tensor(at[:, mixed], values[mixed], shape)
    graph = onehop.Graph.from_edge_index(at.flip(0), size=shape)
    calls: dict[str, Callable[[], Tensor]] = {
        "sparse.mm, COO": lambda: torch.sparse.mm(coo, x),
        "@, COO": lambda: coo @ x,
        "@, COO not coalesced": lambda: scattered @ x,
        "sparse.mm, CSR": lambda: torch.sparse.mm(csr, x),
        "@, CSR": lambda: csr @ x,
    }

    beside = {"aggregate": lambda: onehop.aggregate(graph, x, values)}
    if import_reason("torch_sparse") is None:
        library = plain_sparse.torch_sparse()
        matrix = library.prepared(library.matrix(at, values, size.nodes))
        beside["torch_sparse"] = lambda: library.product(matrix, x)

    def both(call: Callable[[], Tensor]) -> list[Tensor]:
        x.grad = None
        out = call()
        out.backward(grad)
        assert x.grad is not None
        return [out.detach(), x.grad]

    def forward(call: Callable[[], Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return [call()]

    rows = []
    for form, call in calls.items():
        for name, kind in (("forward", forward), ("forward and backward", both)):
            what = f"{order['graph']}: {form}"
            _compare(what, partial(kind, call))
            turns = _turns(WAYS, partial(kind, call))
            for peer, product in beside.items():
                turns[peer] = harness.steady(partial(kind, product), TURN_S, WARM)
            times = in_turns(turns, order["rounds"])
            over = times["onehop"].median_s / times["aggregate"].median_s
            row = {**harness.compared(times, "torch"), "over_aggregate": over}
            rows.append({"part": "products", "case": what, "pass": name, **row})
    return rows


def steps(order: Row) -> list[Row]:
    """The row of a model, in this process."""
    torch.set_num_threads(order["threads"])
    torch.manual_seed(0)
    make = MODELS[order["model"]]
    if order["alone"] is not None:
        with WAYS[order["alone"]]():
            measure_once(make(), WARM)
        return [{"peak": peak_bytes()}]
    beyond = order["model"] in BEYOND_TORCH
    ways = {"onehop": WAYS["onehop"]} if beyond else WAYS
    if not beyond:
        _compare(order["model"], lambda: _seeded(make))
    turns = _turns(ways, make())
    if order["model"] in OF_TORCH_SPARSE and import_reason("torch_sparse") is None:
        turns["torch_sparse"] = harness.steady(make(library=plain_sparse.torch_sparse()), TURN_S, WARM)
    times = in_turns(turns, order["rounds"])
    row = harness.compared(times, None if beyond else "torch")
    return [{"part": "steps", "case": order["model"], "pass": "step", **row}]


def _seeded(make: Callable[[], plain_sparse.Step]) -> list[Tensor]:
    torch.manual_seed(0)
    return make()()


def _compare(what: str, results: Callable[[], list[Tensor]]) -> None:
    """Exits if results differ by more than rounding."""
    ours, expected = (within(way, results) for way in (WAYS["onehop"], WAYS["torch"]))
    for one, other in zip(ours, expected, strict=True):
        if not float((one - other).abs().max() / other.abs().max().clamp_min(1e-30)) <= harness.TOLERANCE:
            raise SystemExit(f"{what}: results differ.")


def _turns(ways: Mapping[str, harness.Way], step: plain_sparse.Step) -> dict[str, Callable[[], float]]:
    # How often a turn calls the step is found out in its own way.
    return {
        name: partial(within, way, within(way, partial(harness.steady, step, TURN_S, WARM)))
        for name, way in ways.items()
    }


def rows(options: Options) -> Iterator[Row]:
    """Measures the parts that are chosen."""
    common: dict[str, Any] = {"threads": options.threads, "rounds": options.rounds}
    if "products" in options.parts:
        for graph in options.graphs:
            yield from harness.apart(products, {"graph": graph, **common}, graph)
    if "steps" in options.parts:
        for model in options.models:
            (row,) = harness.apart(steps, {"model": model, "alone": None, **common}, model)
            ways = ("onehop",) if model in BEYOND_TORCH else tuple(WAYS)
            peaks = {
                way: harness.apart(steps, {"model": model, "alone": way, **common}, model)[0]["peak"]
                for way in ways
            }
            yield {**row, "peak_bytes": peaks}


BENCHMARK = Benchmark(
    "benchmarks/models/bench_sparse.py",
    rows,
    "case; pass; torch, ms | seconds/torch/median_s | ms; onehop, ms | seconds/onehop/median_s | ms; "
    "torch_sparse, ms | seconds/torch_sparse/median_s | ms; "
    "torch / onehop | speedup | gain speedup_quartiles; onehop / aggregate | over_aggregate | {:.2f}",
    {
        "parts": Option(("products", "steps"), known=("products", "steps")),
        "graphs": Option(tuple(GRAPHS), known=tuple(GRAPHS)),
        "models": Option(tuple(MODELS), known=tuple(MODELS)),
    },
    rounds=5,
)

if __name__ == "__main__":
    BENCHMARK.main()
