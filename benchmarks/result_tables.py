"""Tables of what was measured, in Markdown."""

from collections import Counter
from typing import Any

from onehop.bench.floors import PARTS
from onehop.bench.timing import geometric_mean, quantile
from onehop.sizes import mebibytes
from onehop.tables import Table, titled

# As fast as PyG, within what repeated measurements differ by.
EVEN = 0.97
PYG, OURS = "pyg-edge_index", "onehop"

Document = dict[str, Any]


def ratio(value: float | None) -> str:
    """A ratio with two digits after the point, one from 10 on, none from 100 on."""
    if value is None:
        return ""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}x"


def milliseconds(seconds: float) -> str:
    """Three significant digits."""
    value = 1e3 * seconds
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def rows(headings: list[str], lines: list[list[str]], left: int) -> str:
    """A Markdown table; the first ``left`` columns hold words."""
    return Table(titled(headings, left), lines).markdown()


def machine(stamp: Document) -> str:
    """Where and when it was measured, as a sentence."""
    versions = stamp["versions"]
    libraries = ", ".join(
        f"{label} {versions[package]}"
        for package, label in (("torch", "torch"), ("torch_geometric", "PyG"), ("scipy", "SciPy"))
        if versions.get(package)
    )
    return (
        f"Measured on {stamp['date'][:10]}: {stamp['machine']['processor']}, {stamp['threads']} threads, "
        f"{stamp['isa']}, {libraries}. Medians; float32."
    )


def models_table(document: Document) -> str:
    """A line for every model: an epoch alone, patched, and the ratio with its quartiles."""
    lines = []
    for result in document["results"]:
        times, speedup = result["times"], result["speedup_over"].get(PYG)
        if OURS not in times:
            continue
        alone = milliseconds(times[PYG]["median_s"]) if PYG in times else result["skipped"].get(PYG, "")
        spread = (
            ""
            if speedup is None
            else f"{ratio(speedup['median'])} "
            f"({ratio(speedup['lower_quartile'])} to {ratio(speedup['upper_quartile'])})"
        )
        lines.append(
            [
                result["graph"],
                result["model"],
                str(result["hidden"]),
                alone,
                milliseconds(times[OURS]["median_s"]),
                spread,
                memory(result["peak_bytes"].get(PYG)),
                memory(result["peak_bytes"].get(OURS)),
            ]
        )
    headings = ["graph", "model", "hidden", "PyG, ms", "with onehop, ms", "speed-up (quartiles)"]
    return rows([*headings, "PyG, peak MiB", "with onehop, peak MiB"], lines, left=2)


def parts_table(document: Document) -> str:
    """A line for every published model: where its patched epoch goes, and how far it is from its floor."""
    lines = []
    for result in document["results"]:
        found = result.get("breakdown")
        if found:
            floor = found["floor_s"]
            lines.append(
                [
                    result["graph"],
                    result["model"],
                    ratio(found["x_of_floor"]),
                    *(
                        part_cell(found["shares"][part], found["seconds"][part], floor, part)
                        for part in PARTS
                    ),
                ]
            )
    headings = ["graph", "model", "epoch over its floor", *PARTS]
    return rows(headings, lines, left=2)


def part_cell(share: float, seconds: float, floor: dict[str, float] | None, part: str) -> str:
    """A part's milliseconds, its share of the epoch, and how many times its floor it is."""
    text = f"{milliseconds(seconds)} ms, {100 * share:.0f} %"
    return f"{text}, {ratio(seconds / floor[part])}" if floor and floor[part] else text


def machine_line(stamp: Document) -> str:
    """The machine in a line, for pictures."""
    return f"{stamp['machine']['processor']}, {stamp['threads']} threads, {stamp['isa']}"


def memory(size: int | None) -> str:
    """Mebibytes; empty for None."""
    return "" if size is None else mebibytes(size)


def layers_table(document: Document) -> str:
    """A line for every layer: time and memory beside PyG, and the operator's share of the roof."""
    lines = [
        [
            result["graph"],
            result["layer"],
            milliseconds(result["seconds"]["pyg"]) if "pyg" in result["seconds"] else "",
            milliseconds(result["seconds"]["onehop"]),
            ratio(result.get("speedup", {}).get("pyg")),
            ratio(result.get("speedup", {}).get("dgl")),
            "" if "memory_ratio" not in result else f"1/{result['memory_ratio']:.1f}",
            ""
            if "percent_of_roof" not in result
            else f"{result['percent_of_roof']['forward and backward']:.0f} %",
        ]
        for result in document["results"]
        if not result.get("wrong", False)
    ]
    headings = [
        "graph",
        "layer",
        "PyG, ms",
        "with onehop, ms",
        "over PyG",
        "over DGL",
        "peak memory, of PyG's",
        "share of the roof",
    ]
    return rows(headings, lines, left=2)


def ops_table(document: Document) -> str:
    """A line for every operation, over all graphs and widths."""
    lines = [
        [
            summary["operation"].replace("_", " "),
            str(summary["cases"]),
            ratio(summary["best_peer_geomean"]),
            ratio(summary["torch_geomean"]),
            f"{ratio(summary['worst'])} ({summary['worst_case']})",
            "" if summary["least_percent_of_roof"] is None else f"{summary['least_percent_of_roof']:.0f} %",
        ]
        for summary in document["summary"]
    ]
    headings = [
        "operation",
        "cases",
        "over the best peer",
        "over torch's sparse CSR",
        "worst case against any peer",
        "least share of the roof",
    ]
    return rows(headings, lines, left=1)


def limits_sentence(document: Document) -> str:
    """The memory limits, as a sentence."""
    streams = document["streaming"]
    gathers = ", ".join(f"{g['gbps']:.1f} at {g['row_floats']}" for g in document["gather"])
    return (
        f"Memory limits of this machine: {streams['read']['gbps']:.1f} GB/s for reading in order; for "
        f"reading random rows, the roof of aggregation, by floats a row: {gathers} GB/s."
    )


def compiled_table(document: Document) -> str:
    """A line for every layer whose message is compiled: time and memory beside PyG and beside blocks."""
    lines = [
        [
            result["graph"],
            result["layer"],
            milliseconds(seconds["pyg"]),
            milliseconds(seconds["onehop"]),
            ratio(seconds["pyg"] / seconds["onehop"]),
            ratio(seconds["pyg"] / seconds["blocks"]),
            f"1/{result['peak_bytes']['pyg'] / result['peak_bytes']['onehop']:.1f}",
        ]
        for result in document["results"]
        for seconds in [result["seconds"]]
        if not result["wrong"]
    ]
    headings = ["graph", "layer", "PyG, ms", "with onehop, ms", "over PyG", "in blocks, over PyG"]
    return rows([*headings, "peak memory, of PyG's"], lines, left=2)


def typed_table(document: Document) -> str:
    """A line for every layer of typed edges."""
    lines = [
        [
            result["layer"],
            milliseconds(result["pyg_s"]),
            milliseconds(result["onehop_s"]),
            f"{ratio(spread['median'])} ({ratio(spread['lower_quartile'])} to "
            f"{ratio(spread['upper_quartile'])})",
        ]
        for result in document["results"]
        for spread in [result["ratio"]]
        if not result["wrong"]
    ]
    return rows(["layer", "PyG, ms", "with onehop, ms", "over PyG (quartiles)"], lines, left=1)


def examples_sentence(document: Document) -> str:
    """How many scripts of PyG there are of each kind, and how many take more memory."""
    kinds = Counter(result["verdict"] for result in document["scripts"])
    total = sum(kinds.values())
    told = f"{total} scripts: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}."
    ran = [result for result in document["scripts"] if not result["failed"]]
    more = [result["peak_bytes"]["onehop"] - result["peak_bytes"]["pyg"] for result in ran]
    before = [result["before_bytes"]["onehop"] - result["before_bytes"]["pyg"] for result in ran]
    if (higher := [size for size in more if size > 0]) and (own := quantile(before, 0.5)) > 0:
        told += (
            f" The peak is higher with onehop in {len(higher)}, by at most {mebibytes(max(higher))} MiB; the "
            f"library itself takes {mebibytes(own)} MiB before the first epoch."
        )
    return told


def examples_table(document: Document) -> str:
    """A line for every example script of PyG that ran both ways."""
    lines = []
    for result in document["scripts"]:
        if result["failed"] or "speedup" not in result:
            continue
        spread, times, peak = result["speedup"], result["times"], result["peak_bytes"]
        lines.append(
            [
                f"`{result['script']}`",
                result["verdict"],
                milliseconds(times["pyg"]["median_s"]),
                milliseconds(times["onehop"]["median_s"]),
                f"{ratio(spread['median'])} ({ratio(spread['lower_quartile'])} to "
                f"{ratio(spread['upper_quartile'])})",
                memory(peak["pyg"]),
                memory(peak["onehop"]),
            ]
        )
    headings = ["script", "with onehop", "PyG, ms", "with onehop, ms", "speed-up (quartiles)"]
    return rows([*headings, "PyG, peak MiB", "with onehop, peak MiB"], lines, left=2)


def small_table(document: Document) -> str:
    """A line for every size: how the layers of small graphs fare."""
    lines = []
    for edges in dict.fromkeys(case["edges"] for case in document["cases"]):
        cases = [case for case in document["cases"] if case["edges"] == edges]
        least = min(cases, key=lambda case: case["ratio"])
        lines.append(
            [
                f"{edges:,}",
                str(len(cases)),
                ratio(geometric_mean([case["ratio"] for case in cases])),
                *(
                    f"{100 * sum(case[kind] >= EVEN for case in cases) / len(cases):.0f} %"
                    for kind in ("ratio", "control")
                ),
                f"{ratio(least['ratio'])} ({least['layer']}, {least['edge_index']}, {least['pass']})",
            ]
        )
    even = f"at least {EVEN}x"
    return rows(["edges", "cases", "over PyG", even, f"PyG over itself {even}", "least"], lines, left=0)
