"""The result of :func:`onehop.explain`: a row for each layer, as a table in text and in HTML."""

import html
from dataclasses import dataclass

from onehop import notebook
from onehop.integrations.reports import IN_BLOCKS

_COLUMNS = 100
_LONGEST_NAME = 28
_HEADINGS = ("layer", "class", "calls", "path")
_CUT = "…"


@dataclass(frozen=True, slots=True)
class LayerReport:
    """A row of the explanation.

    Attributes:
        name: Its name in the model; empty for the model itself.
        kind: Its class.
        calls: Number of propagations that ran this way.
        reason: Why the framework's own code ran; None if the fast path did.
        form: What the fast path computed.
        reduce: "sum", "mean", "max" or "min".
        backend: The name of the backend that ran it.
        plan: The plan that it ran with.
        program: The steps of a compiled message, one a line; empty for any other.
        framework: "PyG" or "DGL".
    """

    name: str
    kind: str
    calls: int
    reason: str | None
    form: str
    reduce: str
    backend: str
    plan: str
    program: str
    framework: str = "PyG"

    @property
    def fast(self) -> bool:
        """Return whether it took the fast path."""
        return self.reason is None

    @property
    def path(self) -> str:
        """The path: "fast", "in blocks", or "PyG's" or "DGL's" own code."""
        if self.reason is not None:
            return f"{self.framework}'s"
        return "in blocks" if self.form == IN_BLOCKS else "fast"

    @property
    def told(self) -> str:
        """The path, with what is fused or why it is not fast."""
        if self.reason is not None:
            return f"{self.path}: {self.reason}"
        if self.form == IN_BLOCKS:
            return f"{self.path}: {self.reduce}, {self.plan}"
        return f"{self.path}: {self.reduce} of {self.form}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A row for every layer and every way that it ran; prints as a table of at most 100 columns.

    Notebooks show it as HTML, uncut.

    Attributes:
        layers: The rows, in the order in which the layers ran, and then those that never reached the patch.
        verbose: Whether plans and the programs of compiled messages are printed below the table, and the
            table is as wide as its text.
    """

    layers: tuple[LayerReport, ...]
    verbose: bool = False

    def __str__(self) -> str:
        """The table, followed by plans and programs if ``verbose``."""
        if not self.layers:
            return "The model has no layers of PyG or DGL."
        longest = None if self.verbose else _LONGEST_NAME
        rows = [(_shortened(_named(row), longest), row.kind, str(row.calls), row.told) for row in self.layers]
        widths = [max(len(row[i]) for row in (_HEADINGS, *rows)) for i in range(3)]
        lines = [_line(row, widths) for row in (_HEADINGS, *rows)]
        if not self.verbose:
            lines = [_shortened(line, _COLUMNS) for line in lines]
        lines.insert(1, "-" * max(len(line) for line in lines))
        return "\n".join(lines + self._details())

    def _details(self) -> list[str]:
        lines: list[str] = []
        for row in self.layers if self.verbose else ():
            if row.fast:
                lines += ["", f"{_named(row)}, on {row.backend}: {row.plan}"]
            if row.program:
                lines += ["each message:", *row.program.splitlines()]
        return lines

    def _repr_html_(self) -> str:
        """The table as notebooks show it."""
        if not self.layers:
            return f"<p>{html.escape(str(self))}</p>"
        cells = [(_named(row), row.kind, str(row.calls), row.told) for row in self.layers]
        return notebook.table(_HEADINGS, cells) + "".join(
            f"<pre>{html.escape(line)}</pre>" for line in self._details() if line
        )


def _named(row: LayerReport) -> str:
    return row.name or "(model)"


def _shortened(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else text[: longest - 1] + _CUT


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, cells[-1]])
