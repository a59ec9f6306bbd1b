"""Results as tables for the terminal."""

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from onehop.bench import tables
from onehop.bench.breakdown import Breakdown
from onehop.bench.floors import PARTS
from onehop.bench.limits import Bandwidth, GatherRoof
from onehop.bench.models import ModelResult
from onehop.bench.ops import OURS, CaseResult, Summary
from onehop.bench.peers import PEERS
from onehop.bench.variants import ONEHOP, PYG
from onehop.sizes import mebibytes

# What a table has room for.
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
    """A line for each case: milliseconds of everyone, ratios, share of the roof. Medians."""
    graphs = ", ".join(dict.fromkeys(r.graph for r in results))
    peers = [name for name in PEERS if any(name in r.times or name in r.wrong for r in results)]
    table = tables.table(f"{graphs}: milliseconds, medians")
    table.add_column("case", no_wrap=True)
    for name in (OURS, *peers):
        table.add_column(SHORT.get(name, name), justify="right")
    for heading in ("best peer\n/ onehop", "torch\n/ onehop", "% of\nroof"):
        table.add_column(heading, justify="right")
    for previous, r in zip([None, *results], results, strict=False):
        if previous is not None and previous.operation != r.operation:
            table.add_section()
        best, torch_csr = r.ratio_to(), r.ratio_to("torch-")
        table.add_row(
            f"{r.operation} {r.width}",
            *(_cell(r, name) for name in (OURS, *peers)),
            "" if best is None else _ratio(best.median),
            "" if torch_csr is None else _ratio(torch_csr.median),
            "" if r.percent_of_roof is None else f"{r.percent_of_roof:.0f}",
        )
    return table


def summary_table(summaries: Sequence[Summary]) -> Table:
    """A line for each operation: the figures that matter."""
    table = tables.table("Over all graphs and widths")
    table.add_column("operation", no_wrap=True)
    for heading in (
        "cases",
        "best peer / onehop\n(geometric mean)",
        "torch / onehop\n(geometric mean)",
        "least ratio\nto any peer",
        "where",
        "least %\nof roof",
    ):
        table.add_column(heading, justify="left" if heading == "where" else "right")
    for s in summaries:
        table.add_row(
            s.operation,
            str(s.cases),
            _ratio(s.best_peer_geomean),
            "" if s.torch_geomean is None else _ratio(s.torch_geomean),
            _ratio(s.worst),
            s.worst_case,
            "" if s.least_percent_of_roof is None else f"{s.least_percent_of_roof:.0f}",
        )
    return table


def models_table(results: Sequence[ModelResult]) -> Table:
    """A line for each graph, model and width: milliseconds an epoch, and speed-ups. Medians."""
    names = list(dict.fromkeys(name for r in results for name in r.losses))
    table = tables.table("Training epoch: milliseconds, medians")
    for heading in ("graph", "model", "hidden"):
        table.add_column(heading, no_wrap=True)
    for name in names:
        table.add_column(SHORT.get(name, name), justify="right")
    table.add_column("speed-up\nover PyG", justify="right")
    table.add_column("peak memory\nonehop / PyG, MiB", justify="right")
    for previous, r in zip([None, *results], results, strict=False):
        if previous is not None and previous.graph != r.graph:
            table.add_section()
        ratio = r.speedup()
        table.add_row(
            r.graph,
            r.model if r.sampler is None else f"{r.model}\n(drawn by {r.sampler})",
            str(r.hidden),
            *(_cell(r, name) for name in names),
            "" if ratio is None else f"[bold]{_ratio(ratio.median)}[/bold]",
            " / ".join(mebibytes(r.peak_bytes.get(name)) for name in (ONEHOP.name, PYG.name)),
        )
    return table


def parts_table(results: Sequence[ModelResult]) -> Table:
    """A line for each graph, model and width: the share of each part of onehop's epoch, beside its floor."""
    title = "Parts of onehop's epoch: milliseconds (share), and how many times the part's floor"
    table = tables.table(title)
    for heading in ("graph", "model", "hidden"):
        table.add_column(heading, no_wrap=True)
    for heading in ("epoch", "x of\nfloor", *PARTS):
        table.add_column(heading, justify="right", no_wrap=True)
    for previous, r in zip([None, *results], results, strict=False):
        if previous is not None and previous.graph != r.graph:
            table.add_section()
        found = r.breakdown
        if found is not None:
            table.add_row(
                r.graph,
                r.model,
                str(r.hidden),
                milliseconds(found.epoch_s),
                "-" if found.of_floor is None else f"[bold]{_ratio(found.of_floor)}[/bold]",
                *(_part(found, part) for part in PARTS),
            )
    return table


def _part(found: Breakdown, part: str) -> str:
    text = f"{milliseconds(found.seconds[part])} ({found.shares[part]:.0%})"
    if found.floor_s is None or not found.floor_s[part]:
        return text
    return f"{text} {_ratio(found.seconds[part] / found.floor_s[part])}"


def limits_table(streams: Mapping[str, Bandwidth], roofs: Sequence[GatherRoof], what: str) -> Table:
    """Bandwidths in GB/s, and the gather's in percent of streaming."""
    table = tables.table(f"Memory bandwidth ({what})")
    for heading, justify in (
        ("access", "left"),
        ("GB/s", "right"),
        ("% of read", "right"),
        ("rows ahead", "right"),
    ):
        table.add_column(heading, justify="left" if justify == "left" else "right", no_wrap=True)
    read = streams["read"].gbps
    for name, bandwidth in streams.items():
        table.add_row(f"streaming {name}", f"{bandwidth.gbps:.1f}", f"{100 * bandwidth.gbps / read:.0f}", "")
    table.add_section()
    for roof in roofs:
        gbps = roof.bandwidth.gbps
        label = f"gather of rows of {roof.row_floats} float32 ({4 * roof.row_floats} bytes)"
        table.add_row(label, f"{gbps:.1f}", f"{100 * gbps / read:.0f}", str(roof.prefetch))
    return table


def roof_table(cases: Sequence[CaseResult], roofs: Sequence[GatherRoof]) -> Table:
    """A graph's own gather and onehop's sum, by width: GB/s, and percent of the gathers."""
    random = {roof.row_floats: roof.bandwidth.gbps for roof in roofs}
    name = cases[0].graph if cases else ""
    table = tables.table(f"onehop.aggregate, sum, on {name}")
    for heading in (
        "width",
        "gather in the graph's\norder, GB/s",
        "aggregate\nms",
        "% of that\ngather",
        "% of random\ngather",
    ):
        table.add_column(heading, justify="right")
    for case in cases:
        if case.roof is None or case.percent_of_roof is None:
            continue
        own = case.roof.gbps
        table.add_row(
            str(case.width),
            f"{own:.1f}",
            milliseconds(case.times[OURS].median_s),
            f"[bold]{case.percent_of_roof:.0f}[/bold]",
            f"{case.percent_of_roof * own / random[case.width]:.0f}",
        )
    return table


def notes(results: Iterable[CaseResult | ModelResult]) -> list[str]:
    """One sentence for every reason why something was left out or found wrong, with how often it was."""
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


def _cell(result: CaseResult | ModelResult, name: str) -> str:
    if name in result.wrong:
        return "[red]wrong[/red]"
    if name not in result.times:
        return "-"
    return milliseconds(result.times[name].median_s)


def milliseconds(seconds: float) -> str:
    """Three significant digits, in milliseconds."""
    value = seconds * 1e3
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def _ratio(value: float) -> str:
    return f"{value:.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"
