"""What all scripts of this folder share: options, turns, processes of their own, tables and JSON.

A script is a :class:`Benchmark`: a generator of rows, the columns that show them, and options of its own.
Scripts run as modules, from the top of the checkout::

    python -m benchmarks.layers.bench_small --layers GCNConv,GATConv --rounds 5 --json small.json

Rows are printed, and written to ``--json``, as soon as they are measured.
"""

import argparse
import importlib
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import RenderableType
from torch import Tensor

import onehop
from benchmarks import columns
from onehop.bench import command
from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.stamp import machine_line
from onehop.bench.timing import Ratio, Times, in_turns, measure_once, median_of_turn, within
from onehop.cli.console import output, progress
from onehop.tables import Column

ROOT = Path(__file__).resolve().parents[1]

Row = dict[str, Any]
Options = argparse.Namespace
Way = Callable[[], AbstractContextManager[Any]]

PYG_AND_ONEHOP: Mapping[str, Way] = {"pyg": nullcontext, "onehop": onehop.patch}
# Relative to the largest entry: sums of float32 differ in their last digits with their order.
TOLERANCE = 1e-3
# Seconds of a turn after its first call, which has to fetch memory that the other way gave back.
BESIDE_PYG_S = 0.1


# --- options ---------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """An option of a script.

    Attributes:
        default: Its value without the option, which also says what it is: a tuple is a list with commas or
            spaces between its entries, False a switch.
        help: Its help text; the default value is added.
        known: The names that a list may have; empty for any.
        kind: The type of a value whose default is None, or of the entries of an empty list.
    """

    default: Any
    help: str = ""
    known: Sequence[str] = ()
    kind: Callable[[str], Any] = str

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        """Adds the option to a parser; ``name`` has underscores."""
        flag, help_text = f"--{name.replace('_', '-')}", f"{self.help} (default: {self.default})".strip()
        if self.default is False:
            parser.add_argument(flag, action="store_true", help=self.help)
        elif isinstance(self.default, tuple):
            kind = type(self.default[0]) if self.default else self.kind
            entries = command.integers if kind is int else command.names if kind is str else _numbers
            parser.add_argument(flag, nargs="*", type=entries, default=[self.default], help=help_text)
        else:
            kind = self.kind if self.default is None else type(self.default)
            parser.add_argument(flag, type=kind, default=self.default, help=help_text)

    def read(self, name: str, value: Any) -> Any:
        """Returns the value for the script.

        Raises:
            SystemExit: A list has an unknown name.
        """
        if not isinstance(self.default, tuple):
            return value
        value = list(itertools.chain.from_iterable(value))
        if self.known and (unknown := [each for each in value if each not in self.known]):
            flag = name.replace("_", "-")
            raise SystemExit(f"--{flag}: unknown {', '.join(unknown)}; there are {', '.join(self.known)}.")
        return value


def _numbers(text: str) -> list[float]:
    return [float(each) for each in command.names(text)]


# --- scripts ---------------------------------------------------------------------------------------------


def _nothing(options: Options, rows: list[Row]) -> Any:
    return ()


@dataclass(frozen=True)
class Benchmark:
    """A script: what it measures, and how that is shown.

    Attributes:
        name: Its name in the results, as the key ``command`` has it.
        rows: Yields what was measured; the rows are written to JSON as they are. What it puts into
            ``options.noted``, a dictionary, are further keys of the results.
        columns: Columns of the table that is printed, or a text that declares them (:func:`columns.of`).
        options: Options of its own, by names with underscores: each an :class:`Option`, or its default value.
        key: The key of the rows in the results; None where ``more`` returns them.
        rounds: The default of ``--rounds``; None for scripts without it.
        threads: Whether there is ``--threads``.
        kept: Names of options whose values are keys of the results.
        more: Returns further keys of the results.
        finish: Likewise, once all rows are measured.
        notes: Returns what is printed after the rows.
        draw: Draws the results into the file of ``--plot``; None for scripts without it.
        doc: What ``--help`` prints; None means the docstring of the script that has ``rows``.
    """

    name: str
    rows: Callable[[Options], Iterable[Row]]
    columns: str | Sequence[Column]
    options: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = "results"
    rounds: int | None = None
    threads: bool = True
    kept: Sequence[str] = ()
    more: Callable[[Options, list[Row]], Mapping[str, Any]] = _nothing
    finish: Callable[[Options, list[Row]], Mapping[str, Any]] = _nothing
    notes: Callable[[Options, list[Row]], Iterable[RenderableType]] = _nothing
    draw: Callable[[Row, Path], None] | None = None
    doc: str | None = None

    def read(self, arguments: Sequence[str] | None = None) -> Options:
        """Returns the options; None means those of the command line."""
        doc = self.doc or sys.modules[self.rows.__module__].__doc__
        parser = command.parser(doc, self.rounds, self.threads, plot=self.draw is not None)
        own = {
            name: each if isinstance(each, Option) else Option(each) for name, each in self.options.items()
        }
        for name, option in own.items():
            option.add(parser, name)
        options = command.read(parser, arguments)
        for name, option in own.items():
            setattr(options, name, option.read(name, getattr(options, name)))
        options.noted = {}
        return options

    def main(self, arguments: Sequence[str] | None = None) -> list[Row]:
        """Measures, prints and writes; returns the rows. None means the arguments of the command line."""
        options = self.read(arguments)
        shown = columns.of(self.columns) if isinstance(self.columns, str) else self.columns
        console, lines, rows = output(), Lines(shown), []
        console.print(machine_line())
        with progress(what=self.name) as bar:
            for row in self.rows(options):
                rows.append(row)
                for line in lines.of(row):
                    console.print(line, markup=False, soft_wrap=True)
                command.write(options, self.name, self.content(options, rows))
                bar.advance()
            options.noted.update(self.finish(options, rows))
        content = self.content(options, rows)
        command.write(options, self.name, content)
        for note in self.notes(options, rows):
            console.print(note, markup=False, soft_wrap=True)
        if self.draw is not None and options.plot:
            self.draw(content, options.plot)
        return rows

    def content(self, options: Options, rows: list[Row]) -> Row:
        """Returns the keys of the results."""
        kept = {name: getattr(options, name) for name in self.kept}
        rows_by_key = {} if self.key is None else {self.key: rows}
        return {**kept, **options.noted, **dict(self.more(options, rows)), **rows_by_key}


def run_part(doc: str | None, parts: Mapping[str, Benchmark]) -> None:
    """Runs the part of a script that the first argument names."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parts[parser.parse_args(sys.argv[1:2]).part].main(sys.argv[2:])


class Lines:
    """A table that is printed row by row; columns grow where a later cell is longer."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._widths = [len(column.title) for column in columns]
        self._begun = False

    def of(self, row: Row) -> list[str]:
        """Returns the lines of a row; before the first one, the headings."""
        cells = [column.cell(row) for column in self._columns]
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, cells, strict=True)]
        headings = [] if self._begun else [self._padded([column.title for column in self._columns])]
        self._begun = True
        return [*headings, self._padded(cells)]

    def _padded(self, cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if column.left else cell.rjust(width)
            for column, cell, width in zip(self._columns, cells, self._widths, strict=True)
        )
        return "  ".join(padded).rstrip()


# --- processes of their own ------------------------------------------------------------------------------


def program_of(function: Callable[..., Any], order: Any) -> list[str]:
    """Returns the command that calls a function of a script with ``order``, and prints its result as JSON."""
    return [sys.executable, "-m", "benchmarks.harness", *_name_of(function), json.dumps(order)]


def _name_of(function: Callable[..., Any]) -> tuple[str, str]:
    """Returns the module and the name of a function of a script, which may run as ``__main__``."""
    file = Path(function.__code__.co_filename).resolve().relative_to(ROOT)
    return ".".join(file.with_suffix("").parts), function.__qualname__


def environment(**more: str) -> dict[str, str]:
    """Returns the environment of a process of its own."""
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": search, **more}


def apart(function: Callable[..., Any], order: Any, what: str = "", **variables: str) -> Any:
    """Calls a function with ``order`` in a process of its own, and returns its result.

    Args:
        function: A function of a script.
        order: Its argument, which JSON can hold.
        what: What it measures; see below.
        variables: Of the environment, beside those of this process.

    Raises:
        SystemExit: The process failed; the message starts with ``what`` and ends with its error.
    """
    program = program_of(function, order)
    done = subprocess.run(program, env=environment(**variables), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{what}:\n{done.stderr}" if what else done.stderr)
    return result_of(done.stdout)


def result_of(printed: str) -> Any:
    """Returns the result in the last line of what a process printed."""
    return json.loads(printed.splitlines()[-1])


# --- turns and comparisons -------------------------------------------------------------------------------


def in_ways(ways: Mapping[str, Way], turn: Callable[[], float], rounds: int) -> dict[str, Times]:
    """Measures the same in several contexts, in turns; entering and leaving them is not timed."""
    return in_turns({name: partial(within, way, turn) for name, way in ways.items()}, rounds)


def beside_pyg(once: Callable[[], list[Tensor]], rounds: int) -> Row:
    """Measures a call under the patch beside the same call of PyG's, after comparing what they return.

    Returns:
        As a line of a result file: medians in seconds, PyG's time over the patched one's with its quartiles,
        the largest difference relative to the largest entry, and whether that is too large.
    """
    patch = onehop.patch()
    expected = within(patch.paused, once)
    pairs = zip(once(), expected, strict=True)
    difference = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)
    turn = partial(median_of_turn, once, BESIDE_PYG_S, least=1)
    times = in_turns({False: partial(within, patch.paused, turn), True: turn}, rounds)
    patch.remove()
    return {
        "pyg_s": times[False].median_s,
        "onehop_s": times[True].median_s,
        "ratio": vars(Ratio.of(times[False], times[True])),
        "difference": difference,
        "wrong": not difference <= TOLERANCE,
    }


def beside_pyg_apart(make: Callable[[Row], Callable[[], list[Tensor]]], order: Row, what: str) -> Row:
    """As :func:`beside_pyg` in a process of its own, of the call that ``make`` makes of ``order``."""
    return apart(_made_beside_pyg, {"make": _name_of(make), "order": order}, what)  # type: ignore[no-any-return]


def _made_beside_pyg(given: Row) -> Row:
    module, name = given["make"]
    torch.set_num_threads(given["order"]["threads"])
    torch.manual_seed(0)
    call = getattr(importlib.import_module(module), name)(given["order"])
    return beside_pyg(call, given["order"]["rounds"])


def steady(call: Callable[[], object], turn_s: float = 0.0, warm: int = 1) -> Callable[[], float]:
    """Returns a turn: calls that are not counted, then calls for about ``turn_s``."""
    repeats = max(1, math.ceil(turn_s / max(measure_once(call), 1e-7))) if turn_s else 1

    def turn() -> float:
        measure_once(call, warm)
        return measure_once(call, repeats)

    return turn


def spread(ratio: Ratio, name: str = "ratio", quartiles: str = "quartiles") -> Row:
    """Returns a ratio and its quartiles as a row has them; these are None for too few rounds."""
    return {name: ratio.median, quartiles: ratio.quartiles}


def compared(times: Mapping[str, Times], slow: str | None, fast: str = "onehop") -> Row:
    """Returns times as a row has them, and the ratio of two of them; no ratio where ``slow`` is None."""
    seconds = {"seconds": {name: taken.to_dict() for name, taken in times.items()}}
    if slow is None:
        return seconds
    return seconds | spread(Ratio.of(times[slow], times[fast]), "speedup", "speedup_quartiles")


def added_bytes(call: Callable[[], object]) -> int:
    """Returns the peak memory that two calls add to this process, which should be one of its own."""
    before = resident_bytes()
    call()
    call()
    return max(peak_bytes() - before, 0)


def apart_by(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Returns the largest difference of an output or a gradient, relative to the largest entry of its kind.

    The output comes first. All gradients have one scale: that of a key's bias, say, is 0 but for rounding.
    """
    largest = max(float(each.abs().max()) for each in expected[1:] or expected)
    worst = 0.0
    for place, (got, want) in enumerate(zip(found, expected, strict=True)):
        scale = largest if place else float(want.abs().max())
        worst = max(worst, float((got - want).abs().max()) / (scale or 1.0))
    return worst


def must_agree(difference: float, tolerance: float, what: str) -> float:
    """Returns the difference.

    Raises:
        SystemExit: It is larger than ``tolerance``, or no number.
    """
    if not difference <= tolerance:
        raise SystemExit(f"{what} differs by {difference:.1e}; nothing was measured.")
    return difference


if __name__ == "__main__":
    module, name, order = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(module), name)(json.loads(order))))
