"""The arguments of the commands of ``onehop simulate``."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onehop.bench import graph_names
from onehop.bench.lists import names
from onehop.cli import choices
from onehop.cli.arguments.experiment import DEFAULT_GRAPH, OfGraphs, Shared, app, check_scale
from onehop.cli.groups import Verb
from onehop.cli.options import Commands, Export, check_file, checked, choice, command, named_graph
from onehop.errors import ArgumentError

_PUBLISHED_PLANS = choices.PIM_PLANS[2:]
PLANS = (
    f"tuned, default, SPxDS such as 2x16, {', '.join(_PUBLISHED_PLANS)}, or a JSON file that PimPlan.to_json "
    "wrote"
)
"""The values of ``--plan``, for help and errors."""


def timings(name: str, text: str) -> dict[str, int]:
    """Return the clocks of ``--timing``, by their names.

    Raises:
        ArgumentError: An entry has another form.

    Examples:
        >>> timings("timing", "faw=32,rcd=39")
        {'faw': 32, 'rcd': 39}
    """
    clocks = {}
    for entry in names(text):
        key, equals, value = entry.partition("=")
        if not equals or not value.isdecimal():
            raise ArgumentError(f"{name}: expected names and clocks as faw=32,rcd=39, got {entry!r}.")
        clocks[key] = int(value)
    return clocks


def _check_ranks(name: str, ranks: int) -> None:
    if ranks < 1 or ranks & (ranks - 1):
        raise ArgumentError(f"{name}: expected a power of two, got {ranks}.")


def _check_faw(name: str, text: str) -> None:
    if text and text not in ("preset", "sheet") and not text.isdecimal():
        raise ArgumentError(f"{name}: expected preset, sheet, or clocks, got {text!r}.")


def _check_plan(name: str, plan: str) -> None:
    is_known = plan in choices.PIM_PLANS or re.fullmatch(r"\d+x\d+", plan) or Path(plan).is_file()
    if not is_known:
        raise ArgumentError(f"{name}: expected {PLANS}, got {plan!r}.")


@dataclass(frozen=True)
class Dram(Shared):
    """Simulate DRAM alone: the time of a number of bursts, the rows that they find open, and the energy."""

    preset_name: Annotated[
        str, choice(choices.DRAM_PRESETS, "", "--preset", also="a TOML file", metavar="NAME")
    ] = "DDR5_4800AN"
    pattern: Annotated[str, choice(choices.DRAM_PATTERNS, "One of ", metavar="NAME")] = "random"
    run_bytes: Annotated[int, typer.Option(help="Contiguous bytes of a random run.", min=1)] = 64
    layout: Annotated[
        str,
        typer.Option(
            metavar="LAYOUT",
            help=f"{', '.join(choices.DRAM_LAYOUTS)}, or fields from the lowest bits on, as "
            "'column:2,bank_group,bank,column,rank,row'.",
        ),
    ] = "row_first"
    requests: Annotated[int, typer.Option(help="Bursts to read or write.", min=1)] = 200_000
    op: Annotated[str, choice(choices.DRAM_OPERATIONS, "One of ", metavar="NAME")] = "read"
    ranks: Annotated[int, checked(_check_ranks, "Ranks behind one data bus, a power of two.")] = 1
    level: Annotated[str, choice(choices.DRAM_LEVELS, "How it is found: one of ", metavar="NAME")] = "command"
    queue: Annotated[int, typer.Option(help="Requests that the controller chooses among.", min=1)] = 32
    scheduler: Annotated[str, choice(choices.DRAM_SCHEDULERS, "One of ", metavar="NAME")] = "fr_fcfs"
    refresh: Annotated[bool, typer.Option(help="Whether ranks are refreshed.")] = True
    refresh_mode: Annotated[str, choice(choices.DRAM_REFRESHES, "One of ", metavar="NAME")] = "all_bank"
    close_after: Annotated[
        int,
        typer.Option(help="Accesses after which a row is closed: 1, closed pages; 0, open pages.", min=0),
    ] = 0
    write_share: Annotated[
        float | None, typer.Option(help="Share of the runs that are written, in place of --op.")
    ] = None
    timing: Annotated[
        str | None,
        checked(timings, "Timings other than the preset's, as faw=32.", metavar="NAME=CLOCKS,..."),
    ] = None
    graph: Annotated[
        str | None,
        named_graph(
            "Read the vectors of this graph's edges instead, target by target, --requests bursts at "
            f"most: {graph_names.HELP}",
            show_default=False,
        ),
    ] = None
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve the requests of this file instead.")
    ] = None
    export: Export = None
    export_format: Annotated[str, choice(choices.DRAM_FORMATS, "One of ", metavar="NAME")] = "load_store"
    commands: Commands = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.graph is not None and self.replay is not None:
            raise ArgumentError("graph, replay: both are requests to be served; give one of them.")
        check_file("replay", self.replay)
        check_scale(self.graph, self.scale)
        needs_commands = self.requests_given or self.trace is not None or self.commands is not None
        if needs_commands and self.level != "command":
            raise ArgumentError(
                "level: expected command, which alone knows given requests, commands and timelines, got "
                f"{self.level!r}."
            )
        if self.sweep and self.export is not None:
            raise ArgumentError(
                "export: a sweep has several lists of requests; leave --export or --sweep away."
            )

    @property
    def requests_given(self) -> bool:
        """Return whether requests come from a graph or a file instead of a random generator."""
        return self.graph is not None or self.replay is not None


@dataclass(frozen=True)
class Gpu(Shared):
    """Count the sectors that a sum's gathers fetch from memory on a GPU, for both mappings of its lanes."""

    graph: Annotated[str, named_graph()] = DEFAULT_GRAPH
    gpu: Annotated[str, choice(choices.GPUS, "", also="a TOML file", metavar="NAME")] = "a100_80gb"
    order: Annotated[str, choice(choices.GPU_ORDERS, "Order of the nodes: one of ", metavar="NAME")] = "own"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale(self.graph, self.scale)
        if self.trace is not None:
            raise ArgumentError("trace: sectors are counted, and have no timeline; leave --trace away.")


@dataclass(frozen=True)
class Ndp(OfGraphs):
    """Simulate aggregation on ranks of DRAM with near-data units: times, bytes and energy of each mapping."""

    layers: Annotated[
        int,
        typer.Option(help="Layers; with several, the first aggregates the graph's own features.", min=1),
    ] = 1
    model: Annotated[
        str | None,
        choice(choices.NDP_MODELS, "Also a forward pass with the host's part, of --layers: ", metavar="NAME"),
    ] = None
    machine: Annotated[str, choice(choices.NDP_PRESETS, "", also="a TOML file", metavar="NAME")] = "grande_16"
    mapping: Annotated[str, choice(choices.NDP_MAPPINGS, "", also="FILE.py:CLASS", metavar="NAME")] = (
        "adaptive"
    )
    tile: Annotated[int, typer.Option(help="Targets that are worked on together.", min=1)] = 128
    retile: Annotated[
        str | None,
        choice(
            choices.NDP_TILINGS,
            "How targets come into tiles; rows if not given, or index where a sampled twin is too large to "
            "be made whole: ",
            metavar="NAME",
            show_default=False,
        ),
    ] = None
    batch: Annotated[
        int | None, typer.Option(help="Nodes listed before the units' lists are merged; default: a window's.")
    ] = None
    broadcast: Annotated[bool, typer.Option(help="Write bundles once a channel.")] = True
    host_order: Annotated[
        str,
        choice(
            (*choices.NDP_HOST_ORDERS, "adaptive"),
            "When the host reads outputs and writes finals, seen from the next window's bundles; adaptive is "
            "the fastest of them: ",
            metavar="NAME",
        ),
    ] = "adaptive"
    faw: Annotated[str, checked(_check_faw, "tFAW: preset, sheet, or clocks.")] = ""
    self_loops: Annotated[bool, typer.Option(help="Give every node an edge to itself.")] = True
    check: Annotated[
        str,
        choice(
            ("full", "sample"),
            "Check results on all targets for the chosen mapping, or on samples: ",
            metavar="NAME",
        ),
    ] = "sample"
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="RUNS",
            help="Estimate from so many random runs of windows, with intervals, instead of simulating all: "
            "for graphs too large, as twin:papers.",
            min=2,
            show_default=False,
        ),
    ] = None
    commands: Commands = None
    priors: Annotated[bool, typer.Option("--priors", help="Also prior machines by name.")] = False
    gantt: Annotated[bool, typer.Option("--gantt", help="Print the schedules of a toy, and stop.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample is not None:
            needing_all = {
                name: getattr(self, name)
                for name in ("sweep", "model", "priors", "trace", "plot", "commands")
            }
            _refuse_sample(**needing_all, mapping=self.compared)
        if self.commands is not None and self.compared:
            raise ArgumentError(
                f"commands: expected a mapping of this machine, whose ranks send them, got {self.mapping}; "
                "omit --commands or --mapping."
            )

    @property
    def compared(self) -> bool:
        """Return whether the mapping is the host or a prior machine, which serve as comparison."""
        return self.mapping in ("baseline", "prior")


def _refuse_sample(**options: object) -> None:
    for option, value in options.items():
        if value:
            raise ArgumentError(
                f"sample, {option}: a sample estimates times, gains and shared reads, and {option} needs the "
                f"whole graph; omit --{option} or --sample."
            )


@dataclass(frozen=True)
class Pim(OfGraphs):
    """Compute sums on a near-bank machine such as UPMEM's: true sums, and the time they would have taken."""

    dtype: Annotated[str, choice(choices.PIM_DTYPES, "In the machine: ", metavar="DTYPE")] = "int32"
    plan: Annotated[str, checked(_check_plan, f"One of {PLANS}.", metavar="PLAN")] = "tuned"
    machine: Annotated[str, choice(choices.PIM_PRESETS, "One of ", also="a TOML file", metavar="NAME")] = (
        "upmem_v1a"
    )
    published: Annotated[
        bool, typer.Option(help="Kernels and merge as PyGim published them: no improvements of ours.")
    ] = False
    host_too: Annotated[bool, typer.Option("--host", help="Measure torch on this machine beside it.")] = False
    model: Annotated[str | None, choice(choices.PIM_MODELS, "A whole model: ", metavar="NAME")] = None
    layers: Annotated[
        int | None, typer.Option(help="Layers of the model; 2 if not given.", min=1, show_default=False)
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers is not None and self.model is None:
            raise ArgumentError("layers: a run without a model is one aggregation; give --model too.")
        if self.sweep and self.model is not None:
            raise ArgumentError("sweep, model: give one of them.")
        if self.host_too and (self.sweep or self.model is not None):
            raise ArgumentError(
                "host: torch is measured beside one aggregation; leave --sweep and --model away."
            )
        is_file = self.plan not in choices.PIM_PLANS and Path(self.plan).is_file()
        if self.published and (self.plan == "default" or is_file):
            raise ArgumentError(
                f"published: the plan {self.plan!r} says itself all that --published would; leave one of "
                "them away, or take a grid or tuned."
            )


for name, options in {"ndp": Ndp, "pim": Pim, "dram": Dram, "gpu": Gpu}.items():
    app.command(name, cls=Verb)(command(options, f"onehop.cli.simulate.{name}:{name}"))
