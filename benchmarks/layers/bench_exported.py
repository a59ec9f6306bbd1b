"""Models that answer one small request: eager, compiled, exported, and compiled ahead of time (AOTInductor).

    python -m benchmarks.layers.bench_exported [--models gcn,sage,gatv2,gin] [--nodes 40,400,4000]
                                               [--ways eager,package] [--rounds 15] [--json FILE]

Models have three layers, 64 wide. A request has new edges, four a node; every way copies them, as a service
makes a tensor of a request. One thread runs, in inference mode, and its processor time counts
(``time.thread_time``). All ways take turns, in a process for each model. Programs are made once, for all
sizes. "patched" means that the model was called, compiled or exported under ``onehop.patch()``. What each way
returns is compared with the eager model's before anything is timed.

Of the patched eager call, three parts are measured by themselves: what onehop's native functions take while
it runs, as many linear steps as the model has, and the rest, which is Python, PyG, torch's dispatch, and
activations.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import models
from torch_geometric.nn.dense import Linear

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop import native
from onehop.bench.plain_models import SERVED
from onehop.bench.timing import in_turns, quantile, within
from onehop.integrations.pyg.edges import few as rewrites_of_few
from onehop.ops import few

WIDTH, EDGES_A_NODE, REQUESTS = 64, 4, 32
TOLERANCE = 1e-4
# A turn takes about so long, after calls for so long that are not counted.
TURN_S, WARM_S = 0.02, 0.005
MODELS: Mapping[str, Callable[[int], Module]] = {
    **SERVED,
    "gin": lambda width: models.GIN(width, width, num_layers=3),
}
PATCHED = "eager-patched"
WAYS = tuple(
    f"{way}{suffix}" for way in ("eager", "compiled", "exported", "package") for suffix in ("", "-patched")
)

Request = tuple[Tensor, Tensor]
Answer = Callable[[Tensor, Tensor], Tensor]


def exported(model: Module, request: Request) -> torch.export.ExportedProgram:
    """The model's program for any number of nodes and edges."""
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    with torch.no_grad():
        return torch.export.export(model, request, dynamic_shapes=({0: nodes}, {1: edges}), strict=False)


def package(program: torch.export.ExportedProgram, file: Path) -> Answer:
    """The program, compiled ahead of time."""
    with torch.no_grad():
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(file))
    return torch._inductor.aoti_load_package(path)


def answers(model: Module, way: str, folder: Path) -> tuple[harness.Way, Answer]:
    """What answers in one of the ways, and the context that it runs in."""
    kind, _, patched = way.partition("-")
    context: harness.Way = onehop.patch if patched else nullcontext
    if kind == "eager":
        return context, model
    if kind == "compiled":
        return context, torch.compile(model, fullgraph=True, dynamic=True)
    with context():
        program = exported(model, requests_of(40)[0])
    if kind == "exported":
        return nullcontext, program.module()
    return nullcontext, package(program, folder / f"{way}.pt2")


def _model(name: str) -> Module:
    torch.manual_seed(0)
    return MODELS[name](WIDTH).eval()


def requests_of(nodes: int) -> list[Request]:
    """Requests: features and edges."""
    generator = torch.Generator().manual_seed(nodes)
    shape = (2, EDGES_A_NODE * nodes)
    return [
        (torch.randn(nodes, WIDTH, generator=generator), torch.randint(nodes, shape, generator=generator))
        for _ in range(REQUESTS)
    ]


@torch.inference_mode()
def turn(answer: Answer, requests: list[Request]) -> float:
    """Seconds of the processor that an answer takes."""
    _answers(answer, requests, WARM_S)
    return _answers(answer, requests, TURN_S)


def _answers(answer: Answer, requests: list[Request], seconds: float) -> float:
    """The mean time of answers for so long."""
    given, count, begin = itertools.cycle(requests), 0, time.thread_time()
    while (taken := time.thread_time() - begin) < seconds:
        x, edges = next(given)
        answer(x, edges.clone())
        count += 1
    return taken / count


class _Timed:
    """Onehop's native module; the time that its functions take is added up.

    Attributes:
        seconds: The time.
        called: The names of functions that were called.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        function = getattr(native.extension, name)
        if isinstance(function, type):
            return function

        def timed(*args: Any) -> Any:
            begin = time.perf_counter()
            found = function(*args)
            self.seconds += time.perf_counter() - begin
            self.called.add(name)
            return found

        return timed


@torch.inference_mode()
def native_seconds(model: Module, requests: list[Request]) -> float | None:
    """Seconds of an answer in onehop's native functions for few edges: the median over requests.

    None where the edges are not few: then other functions aggregate.
    """
    timed, found = _Timed(), []
    places = (few, rewrites_of_few)
    try:
        for place in places:
            place.extension = timed  # type: ignore[attr-defined]
        for x, edges in itertools.chain(requests, requests):
            timed.seconds = 0.0
            model(x, edges.clone())
            found.append(timed.seconds)
    finally:
        for place in places:
            place.extension = native.extension  # type: ignore[attr-defined]
    return quantile(found[len(requests) :], 0.5) if "few_edges" in timed.called else None


def product_seconds(model: Module, requests: list[Request]) -> float:
    """Seconds of as many linear steps as the model has."""
    count = sum(isinstance(module, Linear | torch.nn.Linear) for module in model.modules())
    weight, bias = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH)
    return count * turn(lambda x, _: torch.nn.functional.linear(x, weight, bias), requests)


def parts_of_patched(name: str, requests: list[Request], whole: float) -> Row:
    """The parts of a patched eager call; none where its edges are not few."""
    model = _model(name)
    with onehop.patch():
        of_native, of_products = native_seconds(model, requests), product_seconds(model, requests)
    if of_native is None:
        return {}
    return {
        "native_s": of_native,
        "products_s": of_products,
        "rest": 1 - (of_native + of_products) / whole,
    }


def measured(order: Row) -> list[Row]:
    """The rows of one model."""
    torch.set_num_threads(1)
    name, found = order["model"], []
    with tempfile.TemporaryDirectory() as folder:
        ways = {way: answers(_model(name), way, Path(folder)) for way in order["ways"]}
    for nodes in order["nodes"]:
        requests = requests_of(nodes)
        expected = _answered(nullcontext, _model(name), requests[0])
        difference = max(
            harness.apart_by([_answered(way, answer, requests[0])], [expected])
            for way, answer in ways.values()
        )
        turns = {
            what: partial(within, way, partial(turn, answer, requests))
            for what, (way, answer) in ways.items()
        }
        times = in_turns(turns, order["rounds"])
        found.append(
            {
                "model": name,
                "nodes": nodes,
                "edges": EDGES_A_NODE * nodes,
                "seconds": {what: each.to_dict() for what, each in times.items()},
                **(parts_of_patched(name, requests, times[PATCHED].median_s) if PATCHED in times else {}),
                "difference": difference,
                "wrong": not difference <= TOLERANCE,
            }
        )
    return found


def _answered(way: Callable[[], AbstractContextManager[Any]], answer: Answer, request: Request) -> Tensor:
    with way(), torch.inference_mode():
        return answer(*request)


def rows(options: Options) -> Iterator[Row]:
    """Measures one model after the other."""
    for name in options.models:
        order = {"model": name, "nodes": options.nodes, "ways": options.ways, "rounds": options.rounds}
        yield from harness.apart(measured, order, name)


BENCHMARK = Benchmark(
    "benchmarks/layers/bench_exported.py",
    rows,
    "model; nodes | nodes | {:d}; edges | edges | {:d}; "
    + "".join(f"{way} | seconds/{way}/median_s | ms; " for way in WAYS)
    + "of eager patched: native | native_s | ms; products | products_s | ms; "
    "rest | rest | {:.0%}; | wrong | wrong",
    {"models": Option(tuple(MODELS), known=tuple(MODELS)), "nodes": (40,), "ways": Option(WAYS, known=WAYS)},
    rounds=15,
    threads=False,
)

if __name__ == "__main__":
    BENCHMARK.main()
