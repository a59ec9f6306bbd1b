"""``onehop run`` and ``onehop explain``: an unedited script under the patch, and then what its layers did."""

import importlib
import sys
import time
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from onehop import config, sizes
from onehop.bench import tables
from onehop.bench.memory import peak_bytes
from onehop.bench.results import write_json
from onehop.cli.console import output
from onehop.cli.options import Json, Report
from onehop.cli.script import Script, script
from onehop.cli.watching import Sampler, Tally, Watched, watched
from onehop.integrations import reports
from onehop.integrations.explanation import LayerReport
from onehop.integrations.patch import patch

_NO_LAYERS = "The script ran no layers of PyG or DGL."

# What comes after the script's name is the script's.
SETTINGS = {"allow_interspersed_args": False}

Name = Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, or with -m the module.")]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments.")
]
IsModule = Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as after python -m.")]
Only = Annotated[
    str | None, typer.Option(help="Patch these classes of layers alone; with commas, such as GCNConv,pyg.")
]
Dropout = Annotated[bool | None, typer.Option(help="Torch's dropout on onehop's kernels, with its numbers.")]
Products = Annotated[bool | None, typer.Option(help="Linear steps in the fastest library at hand.")]
Reuse = Annotated[bool | None, typer.Option(help="Keep aggregates of features that do not change.")]
Associate = Annotated[bool | None, typer.Option(help="Multiply before or after aggregation, as is cheaper.")]
KeepMemory = Annotated[bool | None, typer.Option(help="Keep freed memory in the process.")]


@dataclass(frozen=True, slots=True)
class Ran:
    """The outcome of a script.

    Attributes:
        code: Its exit code.
        seconds: Its duration, imports included.
        layers: What its layers did.
    """

    code: int
    seconds: float
    layers: list[Watched]


def run(
    name: Name,
    arguments: Arguments = None,
    module: IsModule = False,
    report: Report = None,
    only: Only = None,
    dropout: Dropout = None,
    products: Products = None,
    reuse: Reuse = None,
    associate: Associate = None,
    keep_memory: KeepMemory = None,
) -> None:
    """Runs an unedited script under the patch, and then says what each class of its layers did.

    The exit code is the script's own. Backward passes are not counted in the shares of the time.
    """
    ran = _ran(script(name, module, arguments or ()), only, dropout, products, reuse, associate, keep_memory)
    peak = peak_bytes()
    console = output()
    console.print(_table(ran))
    without = "; without the patch, which ONEHOP_DISABLE=1 forbids" if config.disabled() else ""
    console.print(Text(f"{ran.seconds:.1f} s, {sizes.told(peak)} at the peak{without}."))
    if report is not None:
        layers = [_as_json(each) for each in ran.layers]
        write_json(report, "run", {"layers": layers, "seconds": ran.seconds, "peak_bytes": peak})
    raise typer.Exit(ran.code)


def explain(
    name: Name, arguments: Arguments = None, module: IsModule = False, only: Only = None, json: Json = None
) -> None:
    """Runs an unedited script under the patch, and then says how its layers ran: plans, programs, reasons."""
    ran = _ran(script(name, module, arguments or ()), only)
    console = output()
    for each in ran.layers:
        console.print(Text(_explained(each.row)), soft_wrap=True)
    if not ran.layers:
        console.print(_NO_LAYERS)
    if json is not None:
        layers = [{**_as_json(each), "program": each.row.program or None} for each in ran.layers]
        write_json(json, "explain", {"layers": layers})
    raise typer.Exit(ran.code)


def _ran(
    program: Script,
    only: str | None,
    dropout: bool | None = None,
    products: bool | None = None,
    reuse: bool | None = None,
    associate: bool | None = None,
    keep_memory: bool | None = None,
) -> Ran:
    if program.imports_dgl():
        importlib.import_module("dgl")
    tally = Tally()
    with (
        patch(
            only=None if only is None else [each.strip() for each in only.split(",")],
            dropout=dropout,
            products=products,
            reuse=reuse,
            associate=associate,
            keep_memory=keep_memory,
        ),
        reports.heard_by(tally),
        Sampler(tally) as sampler,
    ):
        began = time.perf_counter()
        code = program.run()
        seconds = time.perf_counter() - began
        layers = watched(tally, sampler)
    sys.stdout.flush()
    return Ran(code, seconds, layers)


def _table(ran: Ran) -> Table:
    table = tables.table("layers")
    table.add_column("layer", no_wrap=True)
    table.add_column("calls", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("path", overflow="fold")
    for each in ran.layers:
        share = "" if each.share is None else f"{100 * each.share:.0f} %"
        table.add_row(Text(each.row.kind), f"{each.row.calls:,}", share, Text(each.row.told))
    if not ran.layers:
        table.add_row("none", "", "", _NO_LAYERS)
    return table


def _explained(row: LayerReport) -> str:
    lines = [f"{row.kind}, {row.calls:,} call{'' if row.calls == 1 else 's'}, {row.told}"]
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
