"""Puts reproductions into docs/reproduce.md, the page of each work, and README.md, between their markers.

    python -m benchmarks.render_reproductions

Reads benchmarks/results/reproduce/WORK.json as ``onehop reproduce WORK --json`` writes them, and
io-aware-gpu.json as ``onehop reproduce io-aware --gpu build/gpu/gpu.json --json`` does; pictures are in
docs/images/reproduce. docs/reproduce.md has the figures that the works are known for, and the page
docs/reproduce/WORK.md the other published ones. All remaining rows are in the JSON files only. For a work
without a file, the page says how to make one.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.pages import ROOT, replace_between
from benchmarks.result_tables import at_commit
from onehop.reproduce import FITTED, WORKS
from onehop.reproduce.tables import headlines, number, table
from onehop.reproduce.verdicts import VERDICTS
from onehop.tables import Column, Table

PAGE = Path("docs") / "reproduce.md"
PAGES = Path("docs") / "reproduce"
RESULTS = Path("benchmarks") / "results" / "reproduce"
# The end of the name of what `onehop reproduce WORK --fit --json` writes.
FIT = "-fit"
# The end of the name of the rows that `onehop reproduce io-aware --gpu build/gpu/gpu.json --json` writes.
GPU = "-gpu"
PICTURES = Path("docs") / "images" / "reproduce"
README = Path("README.md")
TITLES = {
    "pygim": (
        "PyGim",
        "aggregation in cores at the banks of memory",
        "a simulator: [near-bank machines](docs/machines/pim.md)",
    ),
    "grande": (
        "GraNDe",
        "aggregation at the ranks of memory",
        "a simulator: [the near-rank machine](docs/machines/ndp.md)",
    ),
    "io-aware": (
        "IO-aware layers",
        "attention, max and min on a GPU, no tensor of edges times width",
        "layers [on the CPU](docs/explanation/attention.md), as [Triton kernels](docs/explanation/gpu.md)",
    ),
    "isplib": (
        "iSpLib",
        "training on CPUs with tuned, generated kernels",
        "[kernels](docs/explanation/kernels.md), [the tuner](docs/explanation/tuner.md), cached transposes",
    ),
}
"""For each work its title, what it is, and what of it is here, as links from the README."""


def found(root: Path, work: str) -> dict[str, Any] | None:
    """What was computed of a work; None where nothing was.

    Rows of a run on a GPU take the place of open rows of the same figure. Rows of a version whose verdicts
    could not fail have none: they know no unknowns.
    """
    file, on_gpu = (root / RESULTS / f"{work}{end}.json" for end in ("", GPU))
    if not file.exists():
        return None
    content: dict[str, Any] = json.loads(file.read_text())
    measured = json.loads(on_gpu.read_text())["rows"] if on_gpu.exists() else []
    by_figure = {row["figure"]: row for row in measured if row["ours"] is not None}
    rows = [by_figure.get(row["figure"], row) for row in content["rows"]]
    current = [row if _is_current(row) else row | {"verdict": None} for row in rows]
    return content | {"rows": current}


def _is_current(row: dict[str, Any]) -> bool:
    """Whether a row's verdict follows the rule: a row without a value is open by every rule."""
    return "unknowns" in row or row["ours"] is None


def summary(root: Path) -> str:
    """The table of the figures that the works are known for."""
    rows = [
        {"work": f"[{work}](reproduce/{work}.md)", **row}
        for work in WORKS
        for row in (found(root, work) or {"rows": []})["rows"]
        if row["headline"]
    ]
    return headlines(rows).markdown()


def fit(root: Path, work: str) -> dict[str, Any] | None:
    """The nearest configuration of a work; None if it was not computed."""
    file = root / RESULTS / f"{work}{FIT}.json"
    content: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return content


def fits(root: Path) -> str:
    """The nearest configurations: a sentence, a picture and tables for each work that has one."""
    parts = []
    for work in FITTED:
        picture, content = PICTURES / f"{work}_fit.png", fit(root, work)
        if content is None:
            continue
        tables = [
            Table(
                (
                    Column("unknown", lambda line: line["unknown"]["name"], left=True),
                    Column("nearest", "value", left=True),
                    Column("source", lambda line: line["unknown"]["source"], left=True),
                ),
                content["constants"],
            ),
            Table(
                (
                    Column("figure", "figure", left=True),
                    Column("paper", "paper", number),
                    Column("ours", "ours", number),
                    Column("error", "error", "{:.0%}"),
                ),
                content["figures"],
            ),
        ]
        stamp = content["stamp"]
        size = "on parts of the twins (`--quick`)" if content["quick"] else "at full size"
        parts += [
            f"**{TITLES[work][0]}**, {size}, computed on {stamp['date'][:10]} ({content['machine']}; "
            f"`{RESULTS / f'{work}{FIT}.json'}`). {content['summary']}",
            f"![{work}, each unknown moved alone]({picture.relative_to('docs')})",
            *(table.markdown() for table in tables),
        ]
    return "\n\n".join(parts) or "Not computed yet: `onehop reproduce grande --fit`."


def works(root: Path) -> str:
    """The README's table: each work, what of it is here, and how near our figures are."""
    lines = ["| work | what it is | here | its headline figures |", "| --- | --- | --- | --- |"]
    for work in WORKS:
        computed = found(root, work)
        rows = [row for row in computed["rows"] if row["headline"]] if computed else []
        verdicts = Counter(row["verdict"] for row in rows if row["verdict"] is not None)
        counts = [f"{verdict}: {verdicts[verdict]}" for verdict in VERDICTS if verdicts[verdict]]
        if again := len(rows) - verdicts.total():
            counts.append(f"to be computed again: {again}")
        agreement = f"[{', '.join(counts) or 'not computed yet'}](docs/reproduce/{work}.md)"
        if nearest := fit(root, work):
            error, figures = round(100 * nearest["largest_error"]), len(nearest["figures"])
            agreement = f"one configuration within {error} % of {figures} figures; {agreement}"
        title, kind, here = TITLES[work]
        lines.append(f"| {title} | {kind} | {here} | {agreement} |")
    return "\n".join(lines)


def section(root: Path, work: str) -> str:
    """The text of a work: its source, when and where it was computed, the pictures, a table."""
    computed = found(root, work)
    if computed is None:
        return f"Not computed yet: `make figures WORKS={work}`."
    stamp = computed["stamp"]
    size = "on parts of the twins (`--quick`)" if computed["quick"] else "at full size"
    threads = f"{stamp['threads']} thread{'' if stamp['threads'] == 1 else 's'}"
    lines = [
        computed["source"],
        "",
        f"Computed on {stamp['date'][:10]}{at_commit(stamp)} {size}; {stamp['machine']['processor']}, "
        f"{threads}, torch {stamp['versions']['torch']}.",
    ]
    for chart in computed["charts"]:
        picture = PICTURES / f"{work}_{chart}.png"
        if not (root / picture).exists():
            raise SystemExit(f"{picture}: missing; run make figures WORKS={work}.")
        lines += ["", f"![{work}, {chart.replace('_', ' ')}](../{picture.relative_to('docs')})"]
    others = [row for row in computed["rows"] if row["paper"] is not None and not row["headline"]]
    if others:
        lines += ["", "What else is published, beside ours:", "", table(others).markdown()]
    count = len(computed["rows"])
    lines += ["", f"All {count} rows, with intervals and notes: `{RESULTS / work}.json`."]
    return "\n".join(lines)


def rendered(root: Path) -> dict[Path, str]:
    """The pages with their tables and pictures.

    Raises:
        SystemExit: A marker is missing, or a picture.
    """
    contents = {PAGE: summary(root), **{PAGES / f"{work}.md": section(root, work) for work in WORKS}}
    contents[README] = works(root)
    pages = {}
    for page, content in contents.items():
        name = "works" if page == README else "computed"
        pages[page] = replace_between((root / page).read_text(), content, name, page)
    pages[PAGE] = replace_between(pages[PAGE], fits(root), "fits", PAGE)
    return pages


def main(root: Path = ROOT) -> None:
    """Rewrites the pages."""
    for page, text in rendered(root).items():
        (root / page).write_text(text)


if __name__ == "__main__":
    main()
