"""Puts PyG's example scripts, with and without onehop, into docs/examples.md, and draws their gains.

    python -m benchmarks.render_examples

Reads benchmarks/results/examples_all.json, which ``python -m benchmarks.examples --json`` writes.
"""

import json
from pathlib import Path

from benchmarks import columns
from benchmarks.pages import ROOT, replace_between
from benchmarks.result_pictures import draw_gains
from benchmarks.result_tables import Document, examples_sentence, examples_table, machine, markdown

RESULTS = Path("benchmarks") / "results" / "examples_all.json"
PAGE, PICTURE = Path("docs") / "examples.md", Path("docs") / "images" / "examples"


def by_gain(document: Document) -> Document:
    """The document with its timed scripts alone, those with the largest gain first."""
    timed = [script for script in document["scripts"] if "speedup" in script]
    return {**document, "scripts": sorted(timed, key=lambda script: -script["speedup"]["median"])}


def why(script: Document) -> str:
    """Why a script is as fast as before, or does not run."""
    if script["failed"]:
        return " ".join((script["failed"].get("onehop") or script["failed"]["pyg"]).split())
    reasons = dict.fromkeys(layer["reason"] for layer in script["layers"] if layer["reason"])
    if reasons:
        return "; ".join(reasons)
    calls = sum(layer["calls"] for layer in script["layers"])
    if not calls:
        return "no layer of it called PyG's propagation: it is scripted, or dense"
    kinds = ", ".join(dict.fromkeys(layer["class"] for layer in script["layers"]))
    return f"all {calls} calls of {kinds} are fast, but no faster at this size, or a small part of its time"


def unchanged(document: Document) -> str:
    """A line for every script that is no faster, and why."""
    rows = [
        {**script, "script": f"`{script['script']}`", "why": why(script)}
        for script in document["scripts"]
        if script["verdict"] != "faster"
    ]
    return markdown(columns.of("script; verdict; gain | speedup/median | x; why"), rows)


def content(document: Document) -> str:
    """Everything between the markers of the page."""
    return "\n\n".join(
        [
            f"{machine(document['stamp'])} {examples_sentence(document)}",
            '<picture><source media="(prefers-color-scheme: dark)" srcset="images/examples-dark.svg">\n'
            '<img src="images/examples-light.svg" alt="A bar for each script: its gain"></picture>',
            examples_table(by_gain(document)),
            "## No faster, and why",
            unchanged(document),
        ]
    )


def main(root: Path = ROOT) -> None:
    """Reads, draws, writes."""
    document: Document = json.loads((root / RESULTS).read_text())
    gains = {script["script"]: script["speedup"]["median"] for script in by_gain(document)["scripts"]}
    draw_gains(gains, "PyG's example scripts", document, root / PICTURE)
    page = root / PAGE
    page.write_text(replace_between(page.read_text(), content(document)))


if __name__ == "__main__":
    main()
