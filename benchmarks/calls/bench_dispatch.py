"""What replacing kernels at torch's dispatcher costs small calls, and what it gains large ones.

    python -m benchmarks.calls.bench_dispatch [--parts small,steps,large,halves,break-even]
                                              [--operators index,mm:float16] [--degrees 2,12] [--scale 0.25]
                                              [--rounds 15] [--threads N] [--json FILE]

Everything runs with torch and under ``patch(only="torch")``, or ``patch()`` for the GCN, in turns, in
processes of its own. A ratio is
the median of the rounds' ratios, torch's time over the patched one's. Results are compared before anything is
timed. The parts:

- ``small``: calls of a few numbers, which stay torch's. The difference is the median of the rounds'
  differences; the control is that of two turns of torch alone.
- ``steps``: training steps of an MLP, of a transformer of 107,000 parameters, and of PyG's ``gcn.py``.
- ``large``: gathers by TorchScript and eagerly, embeddings, bags of embeddings and PyG's ``scatter``, forward
  and backward.
- ``halves``: products of 16-bit numbers, and epochs of the Open Graph Benchmark's GCN for arxiv in float32
  and under autocast; on this processor, and as if it had AVX2 alone. Of the GCN, torch's ratio is of PyG
  without the patch, which has one turn; float32 is the patched epoch in float32 over this one.
- ``break-even``: every operator that is served, at half its threshold, at the threshold, at double and four
  times of it. Here it is served at all of these sizes; a row has whether it is at its size by default. Each
  call has a new index. Products of 16-bit numbers run as with AVX2 alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from benchmarks import columns, harness
from benchmarks.calls import dispatch_cases, dispatch_operators
from benchmarks.calls.dispatch_cases import Call
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop import datasets, thresholds
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, Times, in_turns, measure_once, quantile, within
from onehop.bench.training import Training
from onehop.integrations.rows import counted
from onehop.integrations.torch.dense import has_instructions
from onehop.tables import Column

PATCH = partial(onehop.patch, only="torch")
WAYS: Mapping[str, harness.Way] = {"torch": nullcontext, "onehop": PATCH}
# Alone, torch's functions leave PyG's messages as they are, which autocast widens to float32 one by one.
WAYS_OF_GCN: Mapping[str, harness.Way] = {"torch": nullcontext, "onehop": onehop.patch}
# The processor as it is, and without instructions for 16-bit numbers.
PROCESSORS: Mapping[str, Mapping[str, str]] = {
    "native": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
CASES: Mapping[str, Mapping[str, Callable[[Row], Call]]] = {
    "steps": dispatch_cases.STEPS,
    "large": dispatch_cases.LARGE,
}
TIMES = (0.5, 1, 2, 4)
# Seconds of a turn, after so many calls that are not counted: of small calls, and of others.
SMALL_S, SMALL_WARM, TURN_S, WARM = 5e-3, 100, 0.05, 2
# Calls of a turn that each need an index of their own, at most.
MOST_NEW = 200
# Results are compared after so many calls: the loss of a training step tells of gradients in the next one.
COMPARED = 3
TOLERANCE_OF_HALVES = 2**-6


def measured(order: Row) -> list[Row]:
    """The rows of an order, in this process."""
    torch.set_num_threads(order["threads"])
    found: list[Row] = MEASURE[order["part"]](order)
    return [{"part": order["part"], **row} for row in found]


# --- small calls -----------------------------------------------------------------------------------------


def small(order: Row) -> list[Row]:
    """Calls of a few numbers: what the patch adds to each."""
    torch.manual_seed(0)
    ways = {**WAYS, "control": nullcontext}
    rows = []
    for case, call in dispatch_cases.small_calls().items():
        measure_once(call, SMALL_WARM)  # the first call takes much longer than those that a turn has
        turn = harness.steady(call, SMALL_S, SMALL_WARM)
        times = harness.in_ways(ways, turn, order["rounds"])
        added, control = (_differences(times[way], times["torch"]) for way in ("onehop", "control"))
        rows.append(
            {
                "case": case,
                **_times(times),
                "difference_s": quantile(added, 0.5),
                "difference_quartiles": [quantile(added, 0.25), quantile(added, 0.75)],
                "control_s": quantile(control, 0.5),
            }
        )
    return rows


def _differences(first: Times, second: Times) -> list[float]:
    return [a - b for a, b in zip(first.seconds, second.seconds, strict=True)]


# --- steps, large calls, products ------------------------------------------------------------------------


def one_case(order: Row) -> list[Row]:
    """A training step or a large call."""
    make = partial(CASES[order["part"]][order["case"]], order)
    return [{"case": order["case"], **_call(make, order["case"], harness.TOLERANCE, order["rounds"])}]


def halves(order: Row) -> list[Row]:
    """Products of 16-bit numbers, and the GCN."""
    processor = {
        "processor": order["processor"],
        "capability": torch.backends.cpu.get_cpu_capability(),
        "instructions": {name: has_instructions(dtype) for name, dtype in dispatch_cases.DTYPES.items()},
    }
    rows = [
        {"case": case, **_call(partial(make, order), case, TOLERANCE_OF_HALVES, order["rounds"])}
        for case, make in dispatch_cases.products(order["product_rows"]).items()
    ]
    return [{**row, **processor} for row in (*rows, *_gcn(order))]


def _call(make: Callable[[], Call], what: str, tolerance: float, rounds: int) -> Row:
    difference = _difference(make, what, tolerance)
    once = make()
    once()
    times = harness.in_ways(WAYS, harness.steady(once, TURN_S, WARM), rounds)
    return {**_times(times), "difference": difference}


def _difference(make: Callable[[], Call], what: str, tolerance: float) -> float:
    """How far apart both ways' results are, after some calls with the same random numbers."""
    found: dict[str, list[Tensor]] = {}
    for name, way in WAYS.items():
        torch.manual_seed(0)
        once = make()
        with way():
            for _ in range(COMPARED):
                found[name] = once()
    return harness.must_agree(harness.apart_by(found["onehop"], found["torch"]), tolerance, what)


def _gcn(order: Row) -> Iterator[Row]:
    """Epochs in both precisions, each with a model of its own."""
    task = LearningTask.of(datasets.load("twin:arxiv", scale=order["scale"]))
    precisions = {"float32": None, "bfloat16": torch.bfloat16}
    runs = {
        (name, way): Training("ogb-gcn", task, order["hidden"], autocast=dtype)
        for name, dtype in precisions.items()
        for way in WAYS_OF_GCN
    }
    for name in precisions:  # their first epochs, which are not timed
        first, expected = (_first_loss(runs[name, way], way) for way in ("onehop", "torch"))
        difference = abs(first - expected) / abs(expected)
        harness.must_agree(difference, TOLERANCE_OF_HALVES, f"the loss in {name}")
    turns = {
        (name, way): partial(within, WAYS_OF_GCN[way], partial(measure_once, run.epoch))
        for (name, way), run in runs.items()
    }
    times = in_turns(turns, order["rounds"], lambda of, seconds: of[1] == "torch" and len(seconds) > 0)
    for name in precisions:
        yield {
            "case": f"ogb-gcn, {name}",
            **_times({way: times[name, way] for way in WAYS_OF_GCN}),
            "float32": Ratio.of(times["float32", "onehop"], times[name, "onehop"]).median,
        }


def _first_loss(run: Training, way: str) -> float:
    torch.manual_seed(0)  # of dropout
    return within(WAYS_OF_GCN[way], run.epoch)


# --- break-even ------------------------------------------------------------------------------------------


@contextmanager
def _served() -> Iterator[None]:
    """The patch, with the operators served at every size."""
    with ExitStack() as stack:
        stack.enter_context(thresholds.changed(index_entries=0, index_numbers=0, product_work=0))
        stack.enter_context(PATCH())
        yield


def break_even(order: Row) -> list[Row]:
    """An operator at sizes around its threshold."""
    name = order["operator"]
    least = dispatch_operators.threshold(name, order["width"])
    rows = []
    for degree in order["degrees"] if dispatch_operators.has_rows(name) else (1,):
        for times in TIMES:
            size = int(times * least)
            make = partial(dispatch_operators.ready, name, size, order["width"], degree)
            row = {"case": name, "of_threshold": times, "size": size, "degree": degree}
            rows.append({**row, **_at_a_size(make, name, order["rounds"])})
    return rows


def is_served(case: dispatch_operators.Ready) -> bool:
    """Return whether the patch serves an operator at its size by default."""
    with PATCH(), counted() as calls:
        case.call(case.new())
    return any(ours for _, ours in calls)


def _at_a_size(make: Callable[[], dispatch_operators.Ready], name: str, rounds: int) -> Row:
    def compared() -> Call:
        case = make()
        return lambda: [case.call(case.new()).double()]

    is_half = name in dispatch_operators.OF_HALVES
    difference = _difference(compared, name, TOLERANCE_OF_HALVES if is_half else harness.TOLERANCE)
    case = make()
    repeats = min(math.ceil(TURN_S / max(measure_once(lambda: case.call(case.new())), 1e-7)), MOST_NEW)

    def turn() -> float:
        case.call(case.new())
        new = iter([case.new() for _ in range(repeats)])
        return measure_once(lambda: case.call(next(new)), repeats)

    times = harness.in_ways({"torch": nullcontext, "onehop": _served}, turn, rounds)
    return {**_times(times), "difference": difference, "served": is_served(case)}


# --- the script ------------------------------------------------------------------------------------------


def _times(times: Mapping[str, Times]) -> Row:
    medians = {f"{way}_s": times[way].median_s for way in WAYS}
    return {**medians, **harness.spread(Ratio.of(times["torch"], times["onehop"]))}


def _orders(part: str, options: Options) -> Iterator[tuple[Row, Mapping[str, str]]]:
    """What a process of its own measures, and its further environment."""
    if part == "small":
        yield {}, {}
    elif part == "halves":
        for processor in options.processors:
            yield {"processor": processor}, PROCESSORS[processor]
    elif part == "break-even":
        for name in options.operators:
            is_half = name in dispatch_operators.OF_HALVES
            yield {"operator": name}, PROCESSORS["AVX2" if is_half else "native"]
    else:
        yield from (({"case": case}, {}) for case in CASES[part])


def rows(options: Options) -> Iterator[Row]:
    """Measures the parts, one after the other."""
    shared = {name: getattr(options, name) for name in (*SIZES, "degrees", "rounds", "threads")}
    for part in options.parts:
        for order, variables in _orders(part, options):
            what = ", ".join([part, *filter(None, order.values())])
            yield from harness.apart(measured, {**shared, "part": part, **order}, what, **variables)


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:+.3f} us"


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:.2f} us" if seconds < 1e-4 else f"{columns.milliseconds(seconds)} ms"


MEASURE: Mapping[str, Callable[[Row], list[Row]]] = {
    "small": small,
    "steps": one_case,
    "large": one_case,
    "halves": halves,
    "break-even": break_even,
}
SIZES: Mapping[str, Any] = {
    "width": 64,
    "nodes": 170_000,
    "edges": 1_500_000,
    "table_rows": Option(1_000_000, "of tables of embeddings"),
    "bags": Option(20_000, "of 20 entries each"),
    "product_rows": Option(20_000, "of the largest products of 16-bit numbers"),
    "scale": Option(0.25, "of arxiv, for the GCN"),
    "hidden": Option(256, "columns of the GCN"),
}
BENCHMARK = Benchmark(
    "benchmarks/calls/bench_dispatch.py",
    rows,
    [
        *columns.of("part; case"),
        Column("of threshold", columns.at("of_threshold"), "{:g}x"),
        Column("entries a row", columns.at("degree")),
        *columns.of("processor"),
        Column("torch", columns.at("torch_s"), _time),
        Column("onehop", columns.at("onehop_s"), _time),
        *columns.of("over torch | ratio | gain quartiles; float32 | float32 | x; served | served"),
        Column("difference", columns.at("difference_s"), _microseconds),
        Column("control", columns.at("control_s"), _microseconds),
    ],
    {
        "parts": Option(tuple(MEASURE), known=tuple(MEASURE)),
        "operators": Option(dispatch_operators.NAMES, "of break-even", known=dispatch_operators.NAMES),
        "degrees": Option((2, 12), "entries of an index for each row, of break-even"),
        "processors": Option(tuple(PROCESSORS), "of halves", known=tuple(PROCESSORS)),
        **SIZES,
    },
    rounds=15,
    kept=tuple(SIZES),
)

if __name__ == "__main__":
    BENCHMARK.main()
