"""Tables of measured figures in documents, and whether a file of results has each of their figures.

A table outside of markers that has measured figures follows a line that names its files:

    <!-- figures: benchmarks/results/sampler.json -->

Words in brackets behind a file choose the entries that count: ``ops_cora.json (best peer)``.

**Which tables.** A column has measured figures if at least half of its cells are numbers alone, with units
or without, and one of them has a fraction, or the cell or the title has a unit of :data:`UNITS`. A table
with such a column is measured, unless a column of :data:`SOURCED` says where its numbers are from: then it
lists constants. Numbers in a column of :data:`LABELS` say which entries a row is of, and are no figures.

**Which entries.** A figure is right if an entry of the file, in the figure's unit, rounds to the printed
digits. Only these entries count, each step choosing among those of the step before: the entries whose place
shares most words with the row's first cell, then with all words of the row, then with the title of the
column; and of these, those that share most words with first cell and title when their own keys count too.
An entry's place has the words of its keys, and the words and whole numbers of the records that it is in.

**Ratios and means.** A figure without a unit, in percent or with an x may be the quotient of two entries of
the third step, of times or of bytes that are beside each other or have one key under neighbours. A figure
of a column of means may be the mean of entries of one key.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

SOURCED = ("evidence", "reason", "default", "where it is from")
LABELS = (
    *("width", "hidden", "processes", "parts", "nodes", "machines", "clock", "tfaw"),
    *("points", "dims", "clouds", "neighbours"),
)
# Keys of an entry's spread and of its effort, which no table shows.
SPREAD = ("min", "lower", "upper", "quartiles", "rounds")
# Words of one meaning, and words that say nothing.
ALIASES = {"faster": "speedup"}
IGNORED = {"a", "an", "ms", "of", "s", "the", "width", "with"}

UNITS = {
    "ns": ("s", 1e9), "us": ("s", 1e6), "ms": ("s", 1e3), "s": ("s", 1.0), "seconds": ("s", 1.0),
    "KiB": ("bytes", 2**-10), "MiB": ("bytes", 2**-20), "GiB": ("bytes", 2**-30),
    "MB": ("bytes", 1e-6), "GB": ("bytes", 1e-9), "bytes": ("bytes", 1.0),
    "nJ": ("j", 1e9), "mJ": ("j", 1e3), "mW": ("w", 1e3), "W": ("w", 1.0),
    "%": ("ratio", 100.0), "x": ("ratio", 1.0), "M": ("ratio", 1e-6),
}  # fmt: skip
"""For each printed unit its kind, and how many of it are one of that kind's own."""

NUMBER = re.compile(r"(?<![\w.])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\d)")


@dataclass(frozen=True)
class Entry:
    """A number of a file, in its kind's own unit; the words of its place, and those with its own key's."""

    value: float
    kind: str
    labels: frozenset[str]
    words: frozenset[str]
    path: tuple[str, ...]


def words(text: str) -> set[str]:
    """The words and whole numbers of a text, in small letters."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text).replace("Conv", " ").lower()
    found = re.findall(r"[a-z]+|(?<![\d.])\d+(?!\.?\d)", plain)
    found = [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found]
    return {ALIASES.get(word, word) for word in found} - IGNORED


def unit_of(keys: Iterable[str]) -> tuple[str, float]:
    """The kind of unit that the keys of an entry name, and how many of that kind's own unit it is."""
    for key in reversed(list(keys)):
        parts = key.lower().split("_")
        if "per" in parts:
            break
        if "percent" in parts:
            return "percent", 1.0
        if "seconds" in parts or "s" in parts:
            return "s", 1.0
        for unit in ("ms", "us", "ns", "MiB", "bytes", "nJ", "mJ"):
            if unit.lower() in parts:
                kind, factor = UNITS[unit]
                return kind, 1 / factor
    return "ratio", 1.0


def entries(
    value: Any, path: tuple[str, ...] = (), around: Mapping[str, set[str]] = MappingProxyType({})
) -> Iterator[Entry]:
    """The numbers of a file, each with the words of its place: a record's own, and those around it."""
    if isinstance(value, Mapping):
        own = {
            key: words(str(inner))
            for key, inner in value.items()
            if isinstance(inner, str | int) and not isinstance(inner, bool) and key not in SPREAD
        }
        for key, inner in value.items():
            if key not in ("stamp", "step", "command", *LABELS) or isinstance(inner, Mapping | list):
                yield from entries(inner, (*path, str(key)), {**around, **own})
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from entries(inner, (*path, f"[{place}]"), around)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        keys = [key for key in path if not key.startswith("[")]
        if not keys or set(keys[-1].split("_")) & set(SPREAD):
            return
        kind, scale = unit_of(keys)
        labels = frozenset().union(*around.values(), *map(words, keys[:-1]))
        yield Entry(value * scale, kind, labels, labels | words(keys[-1]), path)


def nearest(among: list[Entry], of: Iterable[str], labels: bool) -> list[Entry]:
    """The entries that have most of some words: in their place alone, or with their keys."""
    wanted = set(of)
    counts = [len(wanted & (entry.labels if labels else entry.words)) for entry in among]
    most = max(counts, default=0)
    return [entry for entry, count in zip(among, counts, strict=True) if count == most]


@dataclass(frozen=True)
class Figure:
    """A printed number and its unit; the words of its row's first cell, of all labels, of its column."""

    text: str
    unit: str | None
    first: frozenset[str]
    labels: frozenset[str]
    column: frozenset[str]
    line: int

    def is_value(self, value: float, kind: str) -> bool:
        """Whether a value, in its kind's own unit, is printed so."""
        mantissa, _, exponent = self.text.replace(",", "").partition("e")
        decimals = len(mantissa.partition(".")[2])
        if "," in self.text and not decimals:
            # Thousands are rounded to the digits before their zeros.
            decimals = len(mantissa.rstrip("0")) - len(mantissa)
        printed = float(self.text.replace(",", ""))
        room = 0.5 * 10.0 ** (int(exponent or 0) - decimals) * (1 + 1e-6)
        if kind == "percent":
            scales = [1.0]
        elif kind == "ratio":
            # Numbers whose key names no unit are stored as they are printed.
            scales = {"%": [1.0, 100.0], "M": [1e-6]}.get(self.unit or "", [1.0])
        else:
            scales = [
                factor for unit, (own, factor) in UNITS.items() if own == kind and self.unit in (None, unit)
            ]
        return any(abs(value * scale - printed) <= room for scale in scales)

    def is_in(self, entries: list[Entry]) -> bool:
        """Whether a file has it."""
        row = nearest(nearest(entries, self.first, labels=True), self.labels, labels=True)
        place = nearest(row, self.column, labels=True)
        chosen = nearest(place, self.first | self.column, labels=False)
        if any(self.is_value(entry.value, entry.kind) for entry in chosen):
            return True
        if "mean" in self.column and any(self.is_value(mean, kind) for mean, kind in means(place)):
            return True
        return self.unit in (None, "x", "%") and any(
            self.is_value(quotient, "ratio") for quotient in quotients(place)
        )


def means(among: list[Entry]) -> Iterator[tuple[float, str]]:
    """The mean of the entries of each key, and its kind of unit."""
    by_key: dict[tuple[str, str], list[float]] = {}
    for entry in among:
        by_key.setdefault((entry.path[-1], entry.kind), []).append(entry.value)
    for (_, kind), values in by_key.items():
        yield sum(values) / len(values), kind


def quotients(among: list[Entry]) -> Iterator[float]:
    """The quotients of times, and of bytes, that are beside each other, or under one key of neighbours."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for entry in among:
        if entry.kind in ("s", "bytes") or "ratios" in entry.path:
            groups.setdefault((entry.kind, entry.path[:-1]), []).append(entry.value)
            groups.setdefault((entry.kind, entry.path[:-2], entry.path[-1]), []).append(entry.value)
    for values in groups.values():
        yield from (one / other for one in values for other in values if one is not other and other)


@dataclass(frozen=True)
class Table:
    """A table of a document, outside of markers: its heading, first line and cells, what names its files."""

    document: str
    heading: str
    line: int
    header: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    named: str | None

    def is_measured(self) -> bool:
        """Whether it has measured figures."""
        if any(column.lower() in SOURCED for column in self.header):
            return False
        return any(self._has_figures(place, name) for place, name in enumerate(self.header))

    def _has_figures(self, place: int, name: str) -> bool:
        shown = [row[place] for row in self.body if row[place] not in ("", "-")]
        numbers = [cell for cell in shown if is_number(cell)]
        exact = any("." in cell or unit_in(cell) for cell in numbers) or (bool(numbers) and unit_in(name))
        return not is_label(name) and bool(exact) and 2 * len(numbers) >= len(shown)

    def figures(self) -> Iterator[Figure]:
        """Its figures."""
        above = ""
        for offset, cells in enumerate(self.body):
            above = cells[0] or above
            labels = " ".join(
                cell
                for cell, name in zip(cells, self.header, strict=True)
                if is_label(name) or not is_number(cell)
            )
            for cell, name in zip(cells, self.header, strict=True):
                if is_label(name) or not is_number(cell):
                    continue
                found = list(NUMBER.finditer(cell))
                before, _, behind = name.rpartition(":")
                parts = re.split("[,;]", behind)
                for number, match in enumerate(found):
                    column = f"{before} {parts[number]}" if len(parts) == len(found) > 1 else name
                    unit = unit_after(cell[match.end() :]) or unit_in(name) or unit_in(above)
                    yield Figure(
                        match[0],
                        unit,
                        frozenset(words(above)),
                        frozenset(words(labels)),
                        frozenset(words(column)),
                        self.line + 2 + offset,
                    )


def is_label(name: str) -> bool:
    """Whether the numbers of a column say which entries a row is of."""
    return name.partition(",")[0].lower() in LABELS


def is_number(cell: str) -> bool:
    """Whether a cell has numbers and units alone."""
    rest = NUMBER.sub(" ", cell)
    return rest != cell and all(word in (*UNITS, "to", "of") for word in re.findall(r"[A-Za-z%]+", rest))


def unit_after(text: str) -> str | None:
    """The unit directly behind a number."""
    match = re.match(r"\s?([A-Za-z%]+)", text)
    return match[1] if match and match[1] in UNITS else None


def unit_in(text: str) -> str | None:
    """The last unit that a text has as a word."""
    found = re.findall(r"(?<![A-Za-z'/])[A-Za-z%]+", text)
    return next((word for word in reversed(found) if word in UNITS), None)


def cells_of(row: str) -> tuple[str, ...]:
    """The cells of a line of a table."""
    inner = row.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", inner))


def tables(root: Path, page: Path) -> Iterator[Table]:
    """The tables of a document, outside of markers and of code."""
    lines = page.read_text().splitlines()
    heading, named, rendered, code, place = "", None, False, False, 0
    while place < len(lines):
        line = lines[place]
        if line.lstrip().startswith("```"):
            code = not code
        elif re.fullmatch(r"<!-- .*: (begin|end) -->", line):
            rendered = line.endswith("begin -->")
        elif line.startswith("#") and not code:
            heading = line.lstrip("# ")
        if line.lstrip().startswith("|") and not code:
            end = place
            while end < len(lines) and lines[end].lstrip().startswith("|"):
                end += 1
            if not rendered:
                header, _, *body = (cells_of(row) for row in lines[place:end])
                rows = tuple((*row, *[""] * len(header))[: len(header)] for row in body)
                yield Table(str(page.relative_to(root)), heading, place + 1, header, rows, named)
            place, named = end, None
            continue
        if match := re.fullmatch(r"<!-- figures: (.*) -->", line):
            named = match[1]
        elif line.strip():
            named = None
        place += 1


def files_of(root: Path, named: str) -> tuple[list[list[Entry]], list[str]]:
    """For each file that a line names the entries that count, and the files that are missing."""
    found, missing = [], []
    for file, required in re.findall(r"([\w./-]+\.json)(?: \(([^)]*)\))?", named):
        if not (root / file).exists():
            missing.append(file)
            continue
        document = json.loads((root / file).read_text())
        found.append([entry for entry in entries(document) if words(required) <= entry.words])
    return found, missing


def wrong(table: Table, files: list[list[Entry]]) -> list[Figure]:
    """Figures of a table that none of its files has."""
    return [figure for figure in table.figures() if not any(figure.is_in(file) for file in files)]


def mutants(table: Table, files: list[list[Entry]]) -> tuple[int, int]:
    """How many figures a table has, and how many are reported when their last digit is changed."""
    caught = every = 0
    for figure in table.figures():
        mantissa, e, exponent = figure.text.partition("e")
        changed = mantissa[:-1] + str((int(mantissa[-1]) + 1) % 10) + e + exponent
        every += 1
        caught += not any(replace(figure, text=changed).is_in(file) for file in files)
    return every, caught
