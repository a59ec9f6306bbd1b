"""Results as tables for the terminal."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from onehop.bench.floors import PARTS
from onehop.bench.limits import Bandwidth, GatherRoof
from onehop.bench.models import ModelResult
from onehop.bench.ops import OURS, CaseResult, Summary
from onehop.bench.peers import PEERS
from onehop.bench.serving import ServingResult, gain
from onehop.bench.timing import Ratio, Times
from onehop.bench.variants import ONEHOP, PYG
from onehop.sizes import mebibytes
from onehop.tables import Column, Table

# Short names that fit into a table.
SHORT = {
    "torch-csr-int32": "torch\ncsr 32",
    "torch-csr-int64": "torch\ncsr 64",
    "torch-reduce-int32": "torch\nred 32",
    "torch-reduce-int64": "torch\nred 64",
    "pyg-edge_index": "PyG\nedges",
    "pyg-EdgeIndex": "PyG\nEdgeIndex",
    "pyg-torch-csr": "PyG\ntorch csr",
    "pyg-SparseTensor": "PyG\nSparseT.",
    "pyg-isplib": "PyG\niSpLib",
    "onehop-fresh-memory": "onehop\nfresh mem.",
    "onehop-bf16": "onehop\nbf16",
    "onehop-compiled": "onehop\ncompiled",
    "pyg-bf16": "PyG\nbf16",
    "pyg-compiled": "PyG\ncompiled",
    "torch_sparse": "torch_\nsparse",
}


def ops_table(results: Sequence[CaseResult]) -> Table:
    """Return a table with a line per case: milliseconds of all ways, ratios, share of the roof; medians."""
    graphs = ", ".join(dict.fromkeys(r.graph for r in results))
    peers = [name for name in PEERS if any(name in r.times or name in r.wrong for r in results)]
    columns = (
        Column("case", lambda r: f"{r.operation} {r.width}", left=True, wraps=False),
        *map(_times_of, (OURS, *peers)),
        Column("best peer\n/ onehop", lambda r: _median(r.ratio_to()), _ratio),
        Column("torch\n/ onehop", lambda r: _median(r.ratio_to("torch-")), _ratio),
        Column("% of\nroof", "percent_of_roof", "{:.0f}"),
    )
    return Table(columns, results, f"{graphs}: milliseconds, medians", lambda r: r.operation)


def summary_table(summaries: Sequence[Summary]) -> Table:
    """Return a table with a line per operation: the most important figures."""
    columns = (
        Column("operation", "operation", left=True, wraps=False),
        Column("cases", "cases"),
        Column("best peer / onehop\n(geometric mean)", "best_peer_geomean", _ratio),
        Column("torch / onehop\n(geometric mean)", "torch_geomean", _ratio),
        Column("least ratio\nto any peer", "worst", _ratio),
        Column("where", "worst_case", left=True),
        Column("least %\nof roof", "least_percent_of_roof", "{:.0f}"),
    )
    return Table(columns, summaries, "Over all graphs and widths")


def models_table(results: Sequence[ModelResult]) -> Table:
    """Return a table with a line per graph, model and width: ms per epoch, and speed-ups; medians."""
    columns = (
        *_model(lambda r: r.model if r.sampler is None else f"{r.model}\n(drawn by {r.sampler})"),
        *map(_times_of, dict.fromkeys(name for r in results for name in r.losses)),
        Column(
            "speed-up over\nPyG's best", lambda r: _median(r.speedup(r.best_of_pyg)), _ratio, style="bold"
        ),
        Column("over\nedge_index", lambda r: _median(r.speedup()), _ratio),
        Column(
            "peak memory\nonehop / PyG, MiB",
            lambda r: " / ".join(mebibytes(r.peak_bytes.get(name)) for name in (ONEHOP.name, PYG.name)),
        ),
    )
    rounds = max((len(times.seconds) for r in results for times in r.times.values()), default=0)
    title = f"Training epoch: milliseconds, medians of {rounds} round{'' if rounds == 1 else 's'}"
    return Table(columns, results, title, lambda r: r.graph)


def parts_table(results: Sequence[ModelResult]) -> Table:
    """Return a table with a line per graph, model and width: parts of onehop's epoch, and their floors."""
    columns = (
        *_model("model"),
        Column("epoch", lambda r: milliseconds(r.breakdown.epoch_s), wraps=False),
        Column("x of\nfloor", lambda r: r.breakdown.of_floor, _ratio, absent="-", wraps=False, style="bold"),
        *(Column(part, partial(_part, part), wraps=False) for part in PARTS),
    )
    title = "Parts of onehop's epoch: milliseconds (share), and how many times the part's floor"
    return Table(columns, [r for r in results if r.breakdown is not None], title, lambda r: r.graph)


def _model(shown: str | Callable[[ModelResult], str]) -> Iterator[Column]:
    """Yield the columns that name a model, its graph and its width."""
    for title, field in (("graph", "graph"), ("model", shown), ("hidden", "hidden")):
        yield Column(title, field, left=True, wraps=False)


def _part(part: str, result: ModelResult) -> str:
    breakdown = result.breakdown
    assert breakdown is not None, "only models with a breakdown have a line"
    text = f"{milliseconds(breakdown.seconds[part])} ({breakdown.shares[part]:.0%})"
    if breakdown.floor_s is None or not breakdown.floor_s[part]:
        return text
    return f"{text} {_ratio(breakdown.seconds[part] / breakdown.floor_s[part])}"


def limits_table(streams: Mapping[str, Bandwidth], roofs: Sequence[GatherRoof], what: str) -> Table:
    """Return a table of bandwidths in GB/s, with the gather's also in percent of streaming."""
    read = streams["read"].gbps
    rows: list[tuple[str, float, int | None]] = [
        (f"streaming {name}", bandwidth.gbps, None) for name, bandwidth in streams.items()
    ]
    for roof in roofs:
        label = f"gather of rows of {roof.row_floats} float32 ({4 * roof.row_floats} bytes)"
        rows.append((label, roof.bandwidth.gbps, roof.prefetch))
    columns = (
        Column("access", 0, left=True, wraps=False),
        Column("GB/s", 1, "{:.1f}", wraps=False),
        Column("% of read", lambda row: 100 * row[1] / read, "{:.0f}", wraps=False),
        Column("rows ahead", 2, wraps=False),
    )
    return Table(columns, rows, f"Memory bandwidth ({what})", lambda row: row[2] is None)


def roof_table(cases: Sequence[CaseResult], roofs: Sequence[GatherRoof]) -> Table:
    """Return a table of a graph's own gather and onehop's sum, by width: GB/s, and percent of the gathers."""
    random = {roof.row_floats: roof.bandwidth.gbps for roof in roofs}
    columns = (
        Column("width", "width"),
        Column("gather in the graph's\norder, GB/s", lambda case: case.roof.gbps, "{:.1f}"),
        Column("aggregate\nms", lambda case: milliseconds(case.times[OURS].median_s)),
        Column("% of that\ngather", "percent_of_roof", "{:.0f}", style="bold"),
        Column(
            "% of random\ngather",
            lambda case: case.percent_of_roof * case.roof.gbps / random[case.width],
            "{:.0f}",
        ),
    )
    name = cases[0].graph if cases else ""
    measured = [case for case in cases if case.roof is not None and case.percent_of_roof is not None]
    return Table(columns, measured, f"onehop.aggregate, sum, on {name}")


def serving_table(results: Sequence[ServingResult], workers: str) -> Table:
    """Return a table with a line per model and size: requests per second, latencies at a rate; medians."""
    columns = (
        Column("nodes", lambda r: r.case.nodes, "{:,}"),
        Column("edges", lambda r: r.case.edges, "{:,}"),
        Column("model", lambda r: r.case.model, left=True, wraps=False),
        *_beside("busy: requests/s", lambda r: r.busy_s, lambda seconds: _requests(1 / seconds)),
        Column("rate\nrequests/s", "rate", _requests, absent="-"),
        *_beside("p50, ms", lambda r: r.p50_s, milliseconds),
        *_beside("p99, ms", lambda r: r.p99_s, milliseconds),
    )
    return Table(columns, results, f"Requests to {workers}: medians", lambda r: r.case.nodes)


def _beside(
    title: str, measured: Callable[[ServingResult], dict[str, Times]], shown: Callable[[float], str]
) -> Iterator[Column]:
    """Yield columns of PyG's figure, onehop's figure, and onehop's gain."""

    def figure(way: str, result: ServingResult) -> float | None:
        times = measured(result)
        return times[way].median_s if times else None

    for name, way in (("PyG", "pyg"), ("onehop", "onehop")):
        yield Column(f"{title}\n{name}", partial(figure, way), shown, absent="-")
    yield Column("\nratio", lambda r: _median(gain(measured(r))), _ratio, absent="-", style="bold")


def serving_notes(results: Iterable[ServingResult]) -> list[str]:
    """Return a sentence for every wrong answer, and for every rate that is too high for one of the ways."""
    sentences = []
    for r in results:
        if r.is_wrong:
            sentences.append(f"onehop is WRONG on {r.where}, and not timed: off by {r.difference:.2g}.")
        for name, way in (("PyG", "pyg"), ("onehop", "onehop")):
            if r.rate is not None and r.rate * r.busy_s[way].median_s >= 1:
                sentences.append(
                    f"{r.where}: the rate is more than {name} can answer, so its queue and its latencies "
                    "grow with every second of a turn. Choose a lower --rate."
                )
    return sentences


def _requests(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def notes(results: Iterable[CaseResult | ModelResult]) -> list[str]:
    """Return a sentence for every reason why something was left out or was wrong, with its count."""
    counts: dict[str, int] = {}
    for r in results:
        for name, reason in r.skipped.items():
            sentence = f"{name} left out: {reason}"
            counts[sentence] = counts.get(sentence, 0) + 1
        for name, reason in r.wrong.items():
            where = f"{r.operation} {r.width}" if isinstance(r, CaseResult) else f"{r.model} {r.hidden}"
            counts[f"{name} is WRONG on {r.graph}, {where}, and not timed: {reason}"] = 1
    return [sentence if count == 1 else f"{sentence} ({count} cases)" for sentence, count in counts.items()]


def onehop_is_wrong(results: Iterable[CaseResult | ModelResult]) -> bool:
    """Return whether any result of onehop itself failed its check."""
    return any(name.startswith(ONEHOP.name) for r in results for name in r.wrong)


def _times_of(name: str) -> Column:
    """Return the column of a peer's times."""

    def cell(result: CaseResult | ModelResult) -> str:
        if name in result.wrong:
            return "wrong"
        return milliseconds(result.times[name].median_s) if name in result.times else "-"

    return Column(SHORT.get(name, name), cell, style=lambda result: "red" if name in result.wrong else "")


def _median(ratio: Ratio | None) -> float | None:
    return None if ratio is None else ratio.median


def milliseconds(seconds: float) -> str:
    """Return seconds as milliseconds with three significant digits."""
    value = seconds * 1e3
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def _ratio(value: float) -> str:
    return f"{value:.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"
