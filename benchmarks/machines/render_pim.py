"""Puts the near-bank results into docs/machines/pim-results.md, between its markers.

    python -m benchmarks.machines.render_pim

Reads benchmarks/results/machines/pim_*.json, as the bench_pim_*.py beside this file write them.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import columns
from benchmarks.pages import ROOT, replace_between
from onehop.tables import Table

PAGE = Path("docs") / "machines" / "pim-results.md"

Document = dict[str, Any]
Read = Callable[[str], Document]


def table(text: str, rows: Iterable[Any]) -> str:
    """A Markdown table."""
    return Table(columns.of(text), list(rows)).markdown()


def calibration(read: Read) -> str:
    """Each table's worst point; all of the rate and of the totals."""
    found = read("calibration")
    rows = []
    for what in dict.fromkeys(line["what"] for line in found["calibration"]):
        lines = [line for line in found["calibration"] if line["what"] == what]
        if what.split()[0] not in ("edges", "published") and len(lines) > 1:
            worst = max(lines, key=lambda line: abs(line["relative_error"]))
            lines = [{**worst, "at": f"{len(lines)} points, worst at {worst['at']}"}]
        rows += [{**line, "error": 100 * line["relative_error"]} for line in lines]
    best = ", ".join(f"{graph} {grid}" for graph, grid in found["winners"].items())
    shown = table(
        "figure | what; at; evidence; there | measured | {:.5g}; model | model | {:.5g}; "
        "error | error | {:+.1f} %",
        rows,
    )
    return f"{shown}\n\nBest grids of the model: {best}."


def links(read: Read) -> str:
    """Errors of the held-out transfers."""
    rows = [
        {**each, "name": name, **{key: 100 * each[key] for key in ("mean_error", "bias", "worst")}}
        for name, each in read("calibration")["held_out"].items()
    ]
    return table(
        "transfers | name; points | points | {}; R2 | r2 | {:.3f}; mean error | mean_error | {:.0f} %; "
        "bias | bias | {:+.0f} %; worst | worst | {:+.0f} %",
        rows,
    )


def evidence(read: Read) -> str:
    """Kind and source of every constant."""
    rows = [(f"`{name}`", *source) for name, source in read("calibration")["constants"].items()]
    return table("constant | 0; evidence | 1; source | 2", rows)


def memory(read: Read) -> str:
    """What fits of AmazonProducts."""
    return table(
        "plan; MiB of 64 | need_mib | {:.1f}; fits | fits | yes or no", read("calibration")["amazon_products"]
    )


def regret(read: Read) -> str:
    """The tuner's figures."""
    found = read("regret")["summary"]
    percent = {key: 100 * value for key, value in found.items()}
    rows = [
        ("cases", found["cases"], "200"),
        ("candidates in each", found["candidates"], ""),
        ("regret, mean", f"{percent['regret_mean']:.3f} %", "1 %"),
        ("regret, worst", f"{percent['regret_worst']:.2f} %", "5 %"),
        ("time, of simulating all candidates, mean", f"{percent['time_share_mean']:.1f} %", "5 %"),
        ("the same, worst", f"{percent['time_share_worst']:.1f} %", "5 %"),
    ]
    return table(" | 0; found | 1 | {}; asked | 2 | {}", rows)


def ablation(read: Read) -> str:
    """Every improvement alone and among the others."""
    entries = read("ablation")["ablation"]
    blocks = []
    for graph, width in dict.fromkeys((e["graph"], e["width"]) for e in entries):
        own = [e for e in entries if (e["graph"], e["width"]) == (graph, width)]
        none, kept = (next(e["ms"] for e in own if e["what"] == what) for what in ("published", "kept"))
        rows = [
            {
                **each,
                "alone": f"{each['alone_ms']:.0f} ({none / each['alone_ms']:.2f}x)",
                "others": "{without_ms:.0f} -> {with_ms:.0f}".format_map(each)
                + f" ({each['without_ms'] / each['with_ms']:.2f}x)",
            }
            for each in own
            if "alone_ms" in each
        ]
        blocks.append(
            f"**{graph}, {width} columns**: published {none:.0f} ms, all that are kept {kept:.0f} ms "
            f"({none / kept:.2f}x)\n\n"
            + table(
                "improvement | what; alone, ms | alone | {}; among the others, ms | others | {}; "
                "kept | kept | yes or no",
                rows,
            )
        )
    return "\n\n".join(blocks)


def streaming(read: Read) -> str:
    """AmazonProducts in rounds."""
    rows = [
        {**row, "both": f"{row['rounds']} x {row['block_rounds']}"} for row in read("ablation")["streaming"]
    ]
    return table(
        "grid; rounds of columns x of blocks | both | {}; ms | ms | {:.0f}; MiB of a bank | mib | {:.1f}",
        rows,
    )


def design(read: Read) -> str:
    """The sweeps of both graphs, side by side."""
    sweeps = [read(f"design_{graph}")["sweep"] for graph in ("proteins", "arxiv")]
    bases = [next(e for e in sweep if (e["name"], e["value"]) == ("cores", 1992)) for sweep in sweeps]
    rows = []
    for entries in zip(*sweeps, strict=True):
        row = [f"`{entries[0]['name']}={entries[0]['value']:g}`"]
        for entry, base in zip(entries, bases, strict=True):
            speedup, energy = (base[key] / entry[key] for key in ("total_ms", "energy_mj"))
            grid = "{sp}x{ds}".format_map(entry["plan"])
            row += [f"{entry['total_ms']:.0f} ({speedup:.2f}x)", f"{energy:.2f}x", grid]
        rows.append(row)
    of_graphs = "; ".join(
        f"{graph}, ms | {at} | {{}}; energy | {at + 1} | {{}}; grid | {at + 2} | {{}}"
        for graph, at in (("proteins", 1), ("arxiv", 4))
    )
    return table(f"machine | 0; {of_graphs}", rows)


def quantisation(read: Read) -> str:
    """Accuracy on Cora."""
    rows = []
    for name, entry in read("quantisation")["accuracy"].items():
        asked, trained = ([100 * share for share in entry.get(key, ())] for key in ("asked", "trained"))
        spread = f"{sum(asked) / len(asked):.2f} % ({min(asked):.1f} to {max(asked):.1f})"
        rows.append((name, spread, trained[0] if trained else None))
    return table("in the machine | 0; asked there | 1 | {}; trained there | 2 | {:.1f} %", rows)


SECTIONS = (calibration, links, evidence, memory, regret, ablation, streaming, design, quantisation)


def rendered(page: str, read: Read) -> str:
    """The page with all sections as the results say.

    Raises:
        SystemExit: A marker is missing.
    """
    for section in SECTIONS:
        page = replace_between(page, section(read), section.__name__, PAGE)
    return page


def results(root: Path) -> Read:
    """Reads a result by its name."""

    def read(name: str) -> Document:
        path = root / "benchmarks" / "results" / "machines" / f"pim_{name}.json"
        document: Document = json.loads(path.read_text())
        return document

    return read


def main(root: Path = ROOT) -> None:
    """Rewrites the page."""
    page = root / PAGE
    page.write_text(rendered(page.read_text(), results(root)))


if __name__ == "__main__":
    main()
