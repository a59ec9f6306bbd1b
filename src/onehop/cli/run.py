"""``onehop run`` and ``onehop explain``: run an unedited script under the patch and report on its layers."""

import contextlib
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NoReturn

from rich.text import Text

from onehop import config, sizes
from onehop.bench.memory import peak_bytes
from onehop.bench.results import write_json
from onehop.cli.arguments.run import Explain, Run
from onehop.cli.console import conclude
from onehop.cli.script import Handover, Script, at_end, script
from onehop.cli.watching import Sampler, Seen, Tally, Watched, watched
from onehop.errors import OnehopError
from onehop.integrations import reports
from onehop.integrations.explain import LayerReport, function_reports, reasons_line
from onehop.integrations.patch import Patch, patch
from onehop.integrations.rows import counted
from onehop.integrations.selection import MODULES
from onehop.storage import STANDARD_OUTPUT
from onehop.tables import Column, Table

_NO_LAYERS = "The script ran no layers of PyG, DGL, MACE or NequIP."

# Options that are passed as arguments to patch().
_OF_PATCH = ("dropout", "products", "indexing", "reuse", "associate", "keep_memory")


def run(options: Run) -> None:
    """Run the script of ``onehop run``; see :class:`Run`."""
    # The script may change the current folder.
    path = _absolute(options.json)

    def tell(layers: list[Watched], seen: Seen, seconds: float) -> None:
        peak = peak_bytes()
        without = "; without the patch, which ONEHOP_DISABLE=1 forbids" if config.disabled() else ""
        if not options.quiet:
            conclude(
                *_tables(layers, seen),
                *map(Text, [*reasons_line(each.row for each in layers), *_largest(seen)]),
                Text(f"{seconds:.1f} s, {sizes.readable(peak)} at the peak{without}."),
            )
        rows = [_as_json(each) for each in layers]
        functions = [{**asdict(each), "share": seen.share(each.name)} for each in seen.functions]
        others = [{"name": name, "share": share} for name, share in seen.others]
        found = {"layers": rows, "functions": functions, "others": others}
        write_json(path, "run", {**found, "seconds": seconds, "peak_bytes": peak})

    given = {name: getattr(options, name) for name in _OF_PATCH}
    place = partial(patch, only=_listed(options.only), **given)
    _begin(script(options.name, options.module, options.arguments or ()), place, tell)


def explain(options: Explain) -> None:
    """Run the script of ``onehop explain``; see :class:`Explain`."""
    path = _absolute(options.json)

    def tell(layers: list[Watched], seen: Seen, seconds: float) -> None:
        functions = [Text(f"{each.name}: {each.text}") for each in seen.functions]
        explained = [Text(_explained(each.row)) for each in layers] or [Text(_NO_LAYERS)]
        if not options.quiet:
            conclude(*functions, *explained, soft_wrap=True)
        rows = [{**_as_json(each), "program": each.row.program or None} for each in layers]
        write_json(path, "explain", {"layers": rows})

    place = partial(patch, only=_listed(options.only))
    _begin(script(options.name, options.module, options.arguments or ()), place, tell)


def _absolute(path: Path | None) -> Path | None:
    """Return a path that stays the same if the script changes the current folder."""
    return path if path is None or path == STANDARD_OUTPUT else path.absolute()


def _listed(only: str | None) -> list[str] | None:
    return None if only is None else [each.strip() for each in only.split(",")]


def _begin(
    program: Script, place: Callable[[], Patch], tell: Callable[[list[Watched], Seen, float], None]
) -> NoReturn:
    """Hand over to the program, with the patch in place; ``tell`` is called when Python ends."""
    # python -W error applies to the script, not to what the patch imports.
    with warnings.catch_warnings(action="ignore") if sys.warnoptions else contextlib.nullcontext():
        packages = program.packages()
        for module in MODULES.values():
            if module.partition(".")[0] in packages:
                # The script will see the error at its own import.
                with contextlib.suppress(ImportError, OSError):
                    importlib.import_module(module)
        place()
    tally = Tally()
    at_end.enter_context(reports.heard_by(tally))
    counter = at_end.enter_context(counted(everywhere=True))
    sampler = at_end.enter_context(Sampler(tally))
    began = time.perf_counter()

    def end() -> None:
        try:
            tell(
                watched(tally, sampler), Seen(sampler, function_reports(counter)), time.perf_counter() - began
            )
        except (OnehopError, OSError) as error:
            conclude(Text(f"onehop: {error}"), soft_wrap=True)

    at_end.callback(end)
    raise Handover(program)


def _table(what: str, rows: Sequence[tuple[str, int | None, float | None, str]]) -> Table:
    columns = (
        Column(what, 0, left=True, wraps=False),
        Column("calls", 1, "{:,}", wraps=False),
        Column("time", 2, lambda share: f"{100 * share:.0f} %", wraps=False),
        Column("path", 3, left=True),
    )
    return Table(columns, rows, f"{what}s")


def _tables(layers: list[Watched], seen: Seen) -> Iterator[Table]:
    rows = [(each.row.kind, each.row.calls, each.share, each.row.text) for each in layers]
    yield _table("layer", rows or [("none", None, None, _NO_LAYERS)])
    if seen.functions:
        functions = seen.functions
        yield _table("function", [(f.name, f.served + f.left, seen.share(f.name), f.text) for f in functions])


def _largest(seen: Seen) -> list[str]:
    """Return a sentence on the largest parts of the time that are not onehop's; empty if there are none."""
    named = ", ".join(f"{name} {100 * share:.0f} %" for name, share in seen.others)
    return [f"Largest parts that onehop does not run: {named}."] if named else []


def _explained(row: LayerReport) -> str:
    lines = [f"{row.kind}, {row.calls:,} call{'' if row.calls == 1 else 's'}, {row.text}"]
    if row.fast:
        lines.append(f"    on {row.backend}: {row.plan}")
    if row.program:
        lines += ["    each message:", *(f"    {line}" for line in row.program.splitlines())]
    return "\n".join(lines)


def _as_json(each: Watched) -> dict[str, object]:
    row = each.row
    return {
        "class": row.kind,
        "path": row.path,
        "calls": row.calls,
        "reason": row.reason,
        "share": each.share,
        "form": row.form or None,
        "reduce": row.reduce or None,
        "plan": row.plan or None,
    }
