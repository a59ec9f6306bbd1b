"""Which path every layer of PyG took in PyG's own tests: for the terminal, and as a page of the documents.

    python tests/integrations/pyg/host_layers.py

writes the columns of speed and memory into the page that is there, from what benchmarks/layers/bench_convs.py
has measured, without running PyG's tests again.
"""

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host_comparison import LayerUse

FAST, TIERED, DELEGATED = "fast", "tiered", "delegated"
NOT_SEEN, NO_MESSAGES = "not seen", "no messages"
_WORDS = {
    NOT_SEEN: "PyG's tests of it were skipped: they need packages or hardware that were missing",
    NO_MESSAGES: "does not propagate itself; layers inside it have rows of their own",
}


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer.

    Attributes:
        name: Its class.
        path: The best path that it took in any test.
        runs: What ran on that path and the next best; empty if it only ever ran as PyG made it.
        reasons: The sentences with which it ran as PyG made it.
    """

    name: str
    path: str
    runs: tuple[str, ...]
    reasons: tuple[str, ...]


def rows(uses: Iterable[LayerUse]) -> list[LayerRow]:
    """A row for every layer that ``torch_geometric.nn.conv`` offers, in its order."""
    from torch_geometric.nn import MessagePassing, conv

    found: dict[str, set[LayerUse]] = {}
    for use in uses:
        found.setdefault(use.kind, set()).add(use)
    made = []
    for name in conv.__all__:
        kind = getattr(conv, name)
        if kind is MessagePassing:
            continue
        seen = sorted(found.get(f"{kind.__module__}.{kind.__qualname__}", ()))
        paths = {use.path for use in seen}
        path = next((path for path in (FAST, TIERED, DELEGATED) if path in paths), NOT_SEEN)
        if path == NOT_SEEN and not issubclass(kind, MessagePassing):
            path = NO_MESSAGES
        runs = [use.what for each in (FAST, TIERED) for use in seen if use.path == each]
        reasons = [use.what for use in seen if use.path == DELEGATED]
        made.append(LayerRow(name, path, tuple(runs), tuple(reasons)))
    return made


def as_text(layers: Sequence[LayerRow]) -> str:
    """A table for the terminal."""
    names, paths = (max(len(getattr(row, column)) for row in layers) for column in ("name", "path"))
    lines = []
    for row in layers:
        words = [*row.runs, *(f"no: {reason}" for reason in row.reasons)] or [_WORDS[row.path]]
        lines.append(f"{row.name:{names}}  {row.path:{paths}}  {words[0]}")
        lines += [f"{'':{names + paths + 4}}{word}" for word in words[1:]]
    return "\n".join(lines)


def as_page(
    layers: Sequence[LayerRow], versions: Mapping[str, str], measured: Mapping[str, Any] | None = None
) -> str:
    """The page in Markdown. Reasons that are given for several layers are numbered.

    Args:
        layers: Its rows.
        versions: Of the packages that ran.
        measured: What bench_convs.py wrote; None leaves its columns empty.
    """
    reasons = sorted({reason for row in layers if row.path in (FAST, TIERED) for reason in row.reasons})
    lines = [_HEAD.format(**versions, measured=NOT_YET)]
    for row in layers:
        marks = ", ".join(str(reasons.index(reason) + 1) for reason in row.reasons if reason in reasons)
        if row.path in (FAST, TIERED):
            lines.append(f"| `{row.name}` | {row.path} | {'; '.join(row.runs)} | | | {marks} |")
        else:
            words = "; ".join(row.reasons) or _WORDS[row.path]
            lines.append(f"| `{row.name}` | {row.path} | {words} | | | |")
    lines.append("\nPyG's own code runs where:\n")
    lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)]
    page = "\n".join(lines) + "\n"
    return page if measured is None else with_figures(page, measured)


def with_figures(page: str, measured: Mapping[str, Any]) -> str:
    """A page with the columns of speed and memory as they were measured.

    Args:
        page: As :func:`as_page` makes it, with figures or without.
        measured: What bench_convs.py wrote.

    Raises:
        ValueError: A measurement was wrong, or the page is of another form.
    """
    found = {}
    for row in measured["results"]:
        if row["wrong"]:
            raise ValueError(f"{row['layer']} gave other results than PyG's: measure it again, or mend it.")
        peaks = row["peak_bytes"]
        share = f"{peaks['onehop'] / peaks['pyg']:.2f}" if peaks["pyg"] else ""
        found[row["layer"]] = f"| {row['ratio']['median']:.1f}x | {share} |"

    def filled(match: re.Match[str]) -> str:
        return f"{match[1]}{found.get(match[2], '| | |')}{match[3]}"

    page, rows = re.subn(_ROW, filled, page, flags=re.MULTILINE)
    page, sentences = re.subn(_MEASURED, lambda _: _sentence(measured), page, flags=re.MULTILINE)
    if not rows or sentences != 1:
        raise ValueError("the page has no columns of speed and memory: have host_suite.py write it anew.")
    return page


# The first three cells and the name among them, two that are replaced, and the last.
_ROW = r"^(\| `(\w+)` \|[^|]*\|[^|]*)\|[^|]*\|[^|]*\|([^|]*\|)$"
_MEASURED = r"^Speed and memory .*$"
NOT_YET = "Speed and memory beside PyG have not been measured."


def _sentence(measured: Mapping[str, Any]) -> str:
    graph, stamp = measured["graph"], measured["stamp"]
    widths = sorted({row["width"] for row in measured["results"]}, reverse=True)
    narrow = [f"{row['layer']} {row['width']}" for row in measured["results"] if row["width"] != widths[0]]
    besides = f" ({', '.join(narrow)})" if narrow else ""
    threads = stamp["threads"]
    return (
        f"Speed and memory are of a forward and backward pass over {graph['nodes']:,} nodes and "
        f"{graph['edges']:,} edges, width {widths[0]}{besides}: PyG's time "
        f"over ours, and our peak over PyG's, each in a process of its own; {stamp['machine']['processor']}, "
        f"{threads} thread{'' if threads == 1 else 's'}, {stamp['isa']}, {stamp['date'][:10]}. "
        "Layers without figures were not measured, most of them because PyG needs further packages for them."
    )


_HEAD = """\
# PyG's layers under the patch

Every layer of `torch_geometric.nn.conv`, and what it did in PyG's own tests under `onehop.patch()`. The page
is made by [running PyG's tests](../howto/run-pygs-tests.md); this one with torch_geometric {torch_geometric}
and torch {torch}.

- **fast**: the whole propagation is one operator of onehop.
- **tiered**: it is several, or the layer's own message, compiled or in blocks, or PyG computes the weights.
- **delegated**: PyG's own code runs, untouched, for the reason given.

The graphs of these tests have a few edges. Otherwise, a layer's own message leaves such graphs to PyG.
[What is served](../patching/served.md) lists the conditions. The numbers in the last column are explained
below the table.

{measured}

| layer | path | what runs | speed | memory | PyG's own code runs where |
|---|---|---|---|---|---|"""


def main() -> None:
    """Writes the columns of speed and memory into the page."""
    root = Path(__file__).resolve().parents[3]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--page", type=Path, default=root / "docs" / "reference" / "pyg-layers.md")
    parser.add_argument("--measured", type=Path, default=MEASURED)
    given = parser.parse_args()
    measured = json.loads(given.measured.read_text(encoding="utf-8"))
    given.page.write_text(with_figures(given.page.read_text(encoding="utf-8"), measured), encoding="utf-8")


MEASURED = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "convs.json"
"""What bench_convs.py has measured last."""

if __name__ == "__main__":
    main()
