"""``onehop run`` and ``onehop explain``: run an unedited script under the patch and report on its layers."""

import contextlib
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from onehop import config, sizes
from onehop.bench.memory import peak_bytes
from onehop.bench.results import write_json
from onehop.cli.console import conclude
from onehop.cli.options import Json, Report, command
from onehop.cli.script import Handover, Script, at_end, script
from onehop.cli.watching import Sampler, Seen, Tally, Watched, watched
from onehop.errors import OnehopError
from onehop.integrations import reports
from onehop.integrations.explain import LayerReport, function_reports, reasons_line
from onehop.integrations.patch import Patch, patch
from onehop.integrations.rows import counted
from onehop.integrations.selection import MODULES
from onehop.tables import Column, Table

_NO_LAYERS = "The script ran no layers of PyG or DGL."

# Options that are passed as arguments to patch().
_OF_PATCH = ("dropout", "products", "indexing", "reuse", "associate", "keep_memory")
# Arguments after the script's name belong to the script.
SETTINGS = {"allow_interspersed_args": False}

Name = Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, or with -m the module.")]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments.")
]
IsModule = Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as after python -m.")]
Only = Annotated[
    str | None, typer.Option(help="Patch these classes of layers alone; with commas, such as GCNConv,pyg.")
]


@dataclass(frozen=True)
class Options:
    """Options of ``run``."""

    name: Name
    arguments: Arguments = None
    module: IsModule = False
    report: Report = None
    only: Only = None
    dropout: Annotated[
        bool | None, typer.Option(help="Torch's dropout on onehop's kernels, with its numbers.")
    ] = None
    products: Annotated[bool | None, typer.Option(help="Linear steps in the fastest library at hand.")] = None
    indexing: Annotated[
        bool | None, typer.Option(help="Torch's large gathers and scatters on onehop's kernels.")
    ] = None
    reuse: Annotated[bool | None, typer.Option(help="Keep aggregates of features that do not change.")] = None
    associate: Annotated[
        bool | None, typer.Option(help="Multiply before or after aggregation, as is cheaper.")
    ] = None
    keep_memory: Annotated[bool | None, typer.Option(help="Keep freed memory in the process.")] = None


@command
def run(options: Options) -> None:
    """Runs an unedited script under the patch, and then says what each class of its layers did.

    Output, errors and exit code are the script's own. The tables go to standard error when Python ends. They
    show the layers, the functions of torch and PyG that the patch serves, and the three largest parts of the
    time that onehop does not run. Backward passes are counted separately.
    """
    # The script may change the current folder.
    path = None if options.report is None else options.report.absolute()

    def tell(layers: list[Watched], seen: Seen, seconds: float) -> None:
        peak = peak_bytes()
        without = "; without the patch, which ONEHOP_DISABLE=1 forbids" if config.disabled() else ""
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


def explain(
    name: Name, arguments: Arguments = None, module: IsModule = False, only: Only = None, json: Json = None
) -> None:
    """Runs an unedited script under the patch, and then says how its layers ran: plans, programs, reasons.

    Output, errors and exit code are the script's own; the report goes to standard error when Python ends.
    """
    path = None if json is None else json.absolute()

    def tell(layers: list[Watched], seen: Seen, seconds: float) -> None:
        functions = [Text(f"{each.name}: {each.text}") for each in seen.functions]
        conclude(
            *functions, *[Text(_explained(each.row)) for each in layers] or [Text(_NO_LAYERS)], soft_wrap=True
        )
        rows = [{**_as_json(each), "program": each.row.program or None} for each in layers]
        write_json(path, "explain", {"layers": rows})

    _begin(script(name, module, arguments or ()), partial(patch, only=_listed(only)), tell)


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
        except OnehopError as error:
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
