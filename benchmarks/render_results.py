"""Puts what was measured into README.md and docs/results.md, between their markers, and draws the pictures.

Reads benchmarks/results/{ops,models,limits}.json, as `onehop bench ops|models|limits --json FILE` writes
them, layers.json from benchmarks/layers/bench_layers.py (`make bench`), and published_models.json, as
`onehop bench models --json FILE` writes it (`make bench-models`). messages.json, typed.json and small.json
are what the scripts beside bench_layers.py write; until they are there, their sections are left out.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onehop import pictures
from onehop.bench.floors import PARTS
from onehop.bench.plots import plot_parts
from onehop.bench.timing import geometric_mean
from onehop.sizes import mebibytes

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = "published_models"
# As fast as PyG, within what repeated measurements differ by.
EVEN = 0.97
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
PYG, OURS = "pyg-edge_index", "onehop"

Document = dict[str, Any]


def read(folder: Path, name: str) -> Document:
    """One of the result files.

    Raises:
        SystemExit: It has not been measured yet.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing: run make bench first.")
    document: Document = json.loads(path.read_text())
    return document


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
    rule = ["---" if column < left else "---:" for column in range(len(headings))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *lines))


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


def published_section(document: Document) -> list[str]:
    """What the published models reach."""
    return [
        machine(document["stamp"]),
        "One training epoch of models as their authors train them, with batch normalisation and dropout, the "
        "losses of the first epochs equal to PyG's ([the models](docs/howto/benchmark.md)):",
        models_table(document),
        "![Speed-up of an epoch over PyG](docs/images/published.png)",
    ]


def parts_section(document: Document) -> list[str]:
    """Where the time of the published models goes."""
    return [
        "## Where a patched epoch goes",
        "Each part, its share of the epoch, and how many times its floor it is. The floor is the time "
        "of its bytes at the speed of a gather, of its products in the fastest library, and of one read and "
        "one write for every other step:",
        parts_table(document),
        "![The parts of an epoch beside their floors](images/parts.png)",
    ]


def section(documents: Mapping[str, Document]) -> str:
    """Everything that goes between the markers of docs/results.md."""
    published, models, limits = documents.get(PUBLISHED), documents["models"], documents["limits"]
    parts = [*(parts_section(published) if published else ())]
    parts += [
        "## Two-layer models",
        machine(models["stamp"]),
        "One training epoch (forward, backward, Adam) of unchanged two-layer PyG models:",
        models_table(models),
        "![Speed-up of an epoch over PyG](images/results.png)",
        "## Layers",
        machine(documents["layers"]["stamp"]),
        "One layer, forward and backward (attention: 4 heads of 32; the others: width 64). The roof is "
        "the gather of random rows of the same length, for the bytes that attention moves if no row is "
        "found in a cache:",
        layers_table(documents["layers"]),
    ]
    for name, words, table in (
        ("messages", "Layers whose message is [compiled](patching.md#any-message), width 64", compiled_table),
        ("typed", "Layers of typed edges, and of several types of nodes", typed_table),
        ("small", "Small graphs, forward and with its backward pass, width 32, geometric means", small_table),
    ):
        if name in documents:
            parts += [machine(documents[name]["stamp"]), f"{words}:", table(documents[name])]
    return "\n\n".join(
        [
            *parts,
            "## Operators",
            machine(documents["ops"]["stamp"]),
            "One operator: the peer's time over onehop's, geometric means over graphs and widths:",
            ops_table(documents["ops"]),
            limits_sentence(limits),
        ]
    )


def replace_between(text: str, content: str) -> str:
    """``text`` with ``content`` between its markers.

    Raises:
        SystemExit: A marker is missing.
    """
    if BEGIN not in text or END not in text:
        raise SystemExit(f"a document has no {BEGIN} and {END} to write between.")
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{content}\n{END}{rest.split(END, 1)[1]}"


def draw(models: Document, path: Path) -> None:
    """Bars: how many times faster an epoch is, by graph, a colour a model."""
    results = [r for r in models["results"] if PYG in r["speedup_over"]]
    groups = list(dict.fromkeys((r["graph"], r["hidden"]) for r in results))
    names = list(dict.fromkeys(r["model"] for r in results))
    colours = dict(zip(names, pictures.PALETTE, strict=False))
    figure = pictures.figure(max(1.1 * len(groups) + 2.5, 8), 4.4)
    axes = figure.subplots()
    width = 0.8 / len(names)
    for place, group in enumerate(groups):
        # Centred over their label, however many there are.
        of_group = [r for r in results if (r["graph"], r["hidden"]) == group]
        for number, result in enumerate(of_group):
            name = result["model"]
            label = name if name not in axes.get_legend_handles_labels()[1] else None
            centre = place + (number - (len(of_group) - 1) / 2) * width
            # From 1, "as fast", up or down: on a logarithmic axis there is no other ground to stand on.
            height = result["speedup_over"][PYG]["median"] - 1
            axes.bar(centre, height, 0.92 * width, bottom=1, color=colours[name], label=label)
            speedup_label(axes, centre, result, rotation=90)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.yaxis.set_minor_formatter("")
    axes.margins(x=0.02, y=0.2)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_xticks(range(len(groups)), [f"{graph}\n{hidden}" for graph, hidden in groups])
    finish(figure, axes, "Training epoch of two-layer models, by graph and hidden width", models, path)


def draw_each(document: Document, path: Path) -> None:
    """A bar for every published model: how many times faster an epoch is; a colour a graph."""
    results = [r for r in document["results"] if PYG in r["speedup_over"]]
    colours = dict(zip(dict.fromkeys(r["graph"] for r in results), pictures.PALETTE, strict=False))
    figure = pictures.figure(max(1.1 * len(results) + 1, 6.5), 4.2)
    axes = figure.subplots()
    for place, result in enumerate(results):
        graph = result["graph"]
        label = graph if graph not in axes.get_legend_handles_labels()[1] else None
        axes.bar(place, result["speedup_over"][PYG]["median"], 0.7, color=colours[graph], label=label)
        speedup_label(axes, place, result)
    axes.axhline(1, color="black", linewidth=1)
    axes.margins(y=0.15)
    axes.set_xticks(range(len(results)), [f"{r['model']}\n{r['hidden']}" for r in results])
    finish(figure, axes, "Training epoch of published models, by hidden width", document, path)


def speedup_label(axes: Axes, place: float, result: Document, rotation: float = 0) -> None:
    """The quartiles over a bar, and the median above them."""
    found = result["speedup_over"][PYG]
    pictures.spread(axes, [place], [found["lower_quartile"]], [found["upper_quartile"]])
    top = max(found["upper_quartile"], found["median"])
    axes.annotate(
        ratio(found["median"]), (place, top), (0, 3), textcoords="offset points", ha="center", va="bottom",
        rotation=rotation, fontsize=pictures.SMALL_SIZE,
    )  # fmt: skip


def finish(figure: Figure, axes: Axes, title: str, document: Document, path: Path) -> None:
    """What both pictures of epochs have in common."""
    axes.set_ylabel("PyG's time over onehop's")
    pictures.style(axes)
    pictures.legend(figure, axes, columns=6)
    pictures.save(figure, f"{title}; lines: quartiles", machine_line(document["stamp"]), path)


def main(root: Path = ROOT) -> None:
    """Reads, draws, writes."""
    folder, images = root / "benchmarks" / "results", root / "docs" / "images"
    documents = {name: read(folder, name) for name in ("ops", "models", "limits", "layers")}
    for name in (PUBLISHED, "messages", "typed", "small"):
        if (folder / f"{name}.json").exists():
            documents[name] = read(folder, name)
    draw(documents["models"], images / "results.png")
    published = documents.get(PUBLISHED)
    contents = {root / "docs" / "results.md": section(documents)}
    if published:
        draw_each(published, images / "published.png")
        plot_parts(published["results"], machine_line(published["stamp"]), images / "parts.png")
        contents[root / "README.md"] = "\n\n".join(published_section(published))
    texts = {path: replace_between(path.read_text(), content) for path, content in contents.items()}
    for path, text in texts.items():
        path.write_text(text)
        sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
