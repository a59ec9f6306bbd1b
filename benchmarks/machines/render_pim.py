"""Puts the near-bank results into docs/machines/pim-results.md, between its markers.

    python benchmarks/machines/render_pim.py

Reads benchmarks/results/machines/pim_*.json, as the bench_pim_*.py beside this file write them.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from onehop.tables import Table, titled

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("docs") / "machines" / "pim-results.md"

Document = dict[str, Any]


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], words: int = 1) -> str:
    """A Markdown table; the first ``words`` columns are left-aligned."""
    return Table(titled(headings, words), list(rows)).markdown()


def calibration(read: Callable[[str], Document]) -> str:
    """Each table's worst point; all of the rate and of the totals."""
    found = read("calibration")["calibration"]
    rows = []
    for what in dict.fromkeys(line["what"] for line in found):
        lines = [line for line in found if line["what"] == what]
        if what.split()[0] not in ("edges", "published"):
            worst = max(lines, key=lambda line: abs(line["relative_error"]))
            worst = (
                {**worst, "at": f"{len(lines)} points, worst at {worst['at']}"} if len(lines) > 1 else worst
            )
            lines = [worst]
        rows += [
            (
                what,
                line["at"],
                line["evidence"],
                f"{line['measured']:.5g}",
                f"{line['model']:.5g}",
                f"{100 * line['relative_error']:+.1f} %",
            )
            for line in lines
        ]
    best = ", ".join(f"{graph} {grid}" for graph, grid in read("calibration")["winners"].items())
    headings = ("figure", "at", "evidence", "there", "model", "error")
    return table(headings, rows, 3) + f"\n\nBest grids of the model: {best}."


def links(read: Callable[[str], Document]) -> str:
    """Errors of the held-out transfers."""
    rows = [
        (
            name,
            each["points"],
            "" if each["r2"] is None else f"{each['r2']:.3f}",
            f"{100 * each['mean_error']:.0f} %",
            f"{100 * each['bias']:+.0f} %",
            f"{100 * each['worst']:+.0f} %",
        )
        for name, each in read("calibration")["held_out"].items()
    ]
    return table(("transfers", "points", "R2", "mean error", "bias", "worst"), rows)


def evidence(read: Callable[[str], Document]) -> str:
    """Kind and source of every constant."""
    rows = [(f"`{name}`", kind, text) for name, (kind, text) in read("calibration")["constants"].items()]
    return table(("constant", "evidence", "source"), rows, 3)


def memory(read: Callable[[str], Document]) -> str:
    """What fits of AmazonProducts."""
    rows = [
        (fact["plan"], f"{fact['need_mib']:.1f}", "yes" if fact["fits"] else "no")
        for fact in read("calibration")["amazon_products"]
    ]
    return table(("plan", "MiB of 64", "fits"), rows)


def regret(read: Callable[[str], Document]) -> str:
    """The tuner's figures."""
    found = read("regret")["summary"]
    rows = [
        ("cases", found["cases"], "200"),
        ("candidates in each", found["candidates"], ""),
        ("regret, mean", f"{100 * found['regret_mean']:.3f} %", "1 %"),
        ("regret, worst", f"{100 * found['regret_worst']:.2f} %", "5 %"),
        ("time, of simulating all candidates, mean", f"{100 * found['time_share_mean']:.1f} %", "5 %"),
        ("the same, worst", f"{100 * found['time_share_worst']:.1f} %", "5 %"),
    ]
    return table(("", "found", "asked"), rows)


def ablation(read: Callable[[str], Document]) -> str:
    """Every improvement alone and among the others."""
    entries = read("ablation")["ablation"]
    blocks = []
    for key in dict.fromkeys((e["graph"], e["width"]) for e in entries):
        own = [e for e in entries if (e["graph"], e["width"]) == key]
        none, kept = (next(e["ms"] for e in own if e["what"] == what) for what in ("published", "kept"))
        rows = []
        for each in own:
            if "alone_ms" not in each:
                continue
            alone, before, after = each["alone_ms"], each["without_ms"], each["with_ms"]
            others = f"{before:.0f} -> {after:.0f} ({before / after:.2f}x)"
            kept_too = "yes" if each["kept"] else "no"
            rows.append((each["what"], f"{alone:.0f} ({none / alone:.2f}x)", others, kept_too))
        blocks.append(
            f"**{key[0]}, {key[1]} columns**: published {none:.0f} ms, all that are kept {kept:.0f} ms "
            f"({none / kept:.2f}x)\n\n"
            + table(("improvement", "alone, ms", "among the others, ms", "kept"), rows)
        )
    return "\n\n".join(blocks)


def streaming(read: Callable[[str], Document]) -> str:
    """AmazonProducts in rounds."""
    rows = [
        (row["grid"], f"{row['rounds']} x {row['block_rounds']}", f"{row['ms']:.0f}", f"{row['mib']:.1f}")
        for row in read("ablation")["streaming"]
    ]
    return table(("grid", "rounds of columns x of blocks", "ms", "MiB of a bank"), rows)


def design(read: Callable[[str], Document]) -> str:
    """The sweeps of both graphs, side by side."""
    sweeps = [read(f"design_{graph}")["sweep"] for graph in ("proteins", "arxiv")]
    bases = [next(e for e in sweep if (e["name"], e["value"]) == ("cores", 1992)) for sweep in sweeps]
    rows = []
    for entries in zip(*sweeps, strict=True):
        row = [f"`{entries[0]['name']}={entries[0]['value']:g}`"]
        for entry, base in zip(entries, bases, strict=True):
            speedup, energy = (base[key] / entry[key] for key in ("total_ms", "energy_mj"))
            plan = entry["plan"]
            row += [
                f"{entry['total_ms']:.0f} ({speedup:.2f}x)",
                f"{energy:.2f}x",
                f"{plan['sp']}x{plan['ds']}",
            ]
        rows.append(row)
    return table(("machine", "proteins, ms", "energy", "grid", "arxiv, ms", "energy", "grid"), rows)


def quantisation(read: Callable[[str], Document]) -> str:
    """Accuracy on Cora."""
    rows = []
    for name, entry in read("quantisation")["accuracy"].items():
        asked, trained = entry["asked"], entry.get("trained")
        mean = 100 * sum(asked) / len(asked)
        spread = f"{100 * min(asked):.1f} to {100 * max(asked):.1f}"
        rows.append((name, f"{mean:.2f} % ({spread})", f"{100 * trained[0]:.1f} %" if trained else ""))
    return table(("in the machine", "asked there", "trained there"), rows)


SECTIONS = (
    calibration,
    links,
    evidence,
    memory,
    regret,
    ablation,
    streaming,
    design,
    quantisation,
)


def rendered(page: str, read: Callable[[str], Document]) -> str:
    """The page with all sections as the results say.

    Raises:
        SystemExit: A marker is missing.
    """
    for section in SECTIONS:
        name = section.__name__
        pattern = re.compile(f"(<!-- {name}: begin -->\n).*?(\n<!-- {name}: end -->)", flags=re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise SystemExit(f"{PAGE}: expected the markers of {name} once.")
        content = section(read)
        page = pattern.sub(lambda match, content=content: match[1] + content + match[2], page)
    return page


def results(root: Path) -> Callable[[str], Document]:
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
