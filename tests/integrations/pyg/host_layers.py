"""Which path every layer of PyG took in PyG's own tests: for the terminal, and as a page of the documents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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


def as_page(layers: Sequence[LayerRow], versions: Mapping[str, str]) -> str:
    """The page in Markdown. Reasons that are given for several layers are numbered."""
    reasons = sorted({reason for row in layers if row.path in (FAST, TIERED) for reason in row.reasons})
    lines = [_HEAD.format(**versions)]
    for row in layers:
        marks = ", ".join(str(reasons.index(reason) + 1) for reason in row.reasons if reason in reasons)
        if row.path in (FAST, TIERED):
            lines.append(f"| `{row.name}` | {row.path} | {'; '.join(row.runs)} | {marks} |")
        else:
            words = "; ".join(row.reasons) or _WORDS[row.path]
            lines.append(f"| `{row.name}` | {row.path} | {words} | |")
    lines.append("\nPyG's own code runs where:\n")
    lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)]
    return "\n".join(lines) + "\n"


_HEAD = """\
# PyG's layers under the patch

Every layer of `torch_geometric.nn.conv`, and what it did in PyG's own tests under `onehop.patch()`. The page
is made by [running PyG's tests](../howto/run-pygs-tests.md); this one with torch_geometric {torch_geometric}
and torch {torch}.

- **fast**: the whole propagation is one operator of onehop.
- **tiered**: it is several, or the layer's own message, compiled or in blocks, or PyG computes the weights.
- **delegated**: PyG's own code runs, untouched, for the reason given.

The graphs of these tests have a few edges. Otherwise, a layer's own message leaves such graphs to PyG.
[Patching](../patching.md) lists the conditions. The numbers in the last column are explained below the table.

| layer | path | what runs | PyG's own code runs where |
|---|---|---|---|"""
