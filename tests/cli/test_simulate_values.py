"""``--set``, ``--sweep`` and ``--grid`` of the verbs of ``onehop simulate``: any value by its name."""

from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onehop import ArgumentError
from onehop.cli.simulate import ndp_sweep
from onehop.cli.simulate.pim import _Case, _changed
from onehop.cli.simulate.values import assignment, changed, kinds_of, told, variation
from onehop.machines.dram import Access, Memory, preset, to_toml
from onehop.machines.ndp import Machine as NearRank
from onehop.machines.pim import upmem_v1a
from onehop.plans.ndp import NdpPlan
from onehop.plans.pim import PimPlan
from tests.cli.running import onehop, written

KINDS = {
    "count": int,
    "rate": float,
    "flag": bool,
    "word": str,
    "perhaps": int | None,
    "clocks": str | int,
    "curve": tuple[tuple[float, float], ...],
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count=16", 16),
        ("count=1e3", 1000),
        ("count= 4 ", 4),
        ("rate=2", 2.0),
        ("rate=-0.5", -0.5),
        ("flag=true", True),
        ("flag=false", False),
        ("word=column:2, bank", "column:2, bank"),
        ("perhaps=none", None),
        ("perhaps=8", 8),
        ("clocks=sheet", "sheet"),
        ("clocks=32", 32),
        ("curve=[[1, 16.9], [32, 43.7]]", ((1, 16.9), (32, 43.7))),
    ],
)
def test_an_assignment_is_read_by_the_type_of_its_name(text: str, value: object) -> None:
    name, found = assignment(text, KINDS)
    assert name == text.partition("=")[0]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("count=4:32", [4, 8, 16, 32]),
        ("count=9:37", [9, 18, 36, 37]),
        ("count=5:5", [5]),
        ("count=1:9:3", [1, 5, 9]),
        ("count=7,3", [7, 3]),
        ("rate=300:2400", [300.0, 600.0, 1200.0, 2400.0]),
        ("rate=0:1:5", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("rate=0.1:0.7:7", [pytest.approx(0.1 * i) for i in range(1, 8)]),
        ("flag=true,false", [True, False]),
        ("word=csr,coo", ["csr", "coo"]),
        ("perhaps=none,2", [None, 2]),
        ("clocks=preset,sheet,32", ["preset", "sheet", 32]),
        ("clocks=16:32", [16, 32]),
    ],
)
def test_a_variation_is_a_list_of_values(text: str, values: list[object]) -> None:
    name, found = variation(text, KINDS)
    assert (name, found) == (text.partition("=")[0], values)
    if name == "rate" and ":" in text:
        assert found[-1] == float(text.split(":")[1])  # the end itself


WRONG = {
    "set": {
        "counts=3": "with a NAME of count, rate, flag, word, perhaps, clocks, curve; got 'counts=3'",
        "count": "expected NAME=VALUE",
        "count=2.5": "expected integers for count, got '2.5'",
        "count=": "expected integers for count, got ''",
        "count=true": "expected integers for count",
        "rate=fast": "expected numbers for rate, got 'fast'",
        "rate=nan": "expected numbers for rate",
        "rate=inf": "expected numbers for rate",
        "flag=1": "expected true or false for flag, got '1'",
        "perhaps=some": "expected integers or none for perhaps",
        "curve=3": "expected pairs such as",
        "curve=[3]": "expected pairs such as",
        "curve=[[1, 2": "expected pairs such as",
    },
    "sweep": {
        "counts=1:2": "with a NAME of count, rate, flag, word, perhaps, clocks; got 'counts=1:2'",
        "curve=1,2": "with a NAME of count",
        "count=4:2": "A:B with 0 < A <= B",
        "count=0:4": "A:B with 0 < A <= B",
        "count=1:inf": "A:B with 0 < A <= B",
        "count=1:8:1": "an integer N of 2 to 10000",
        "count=1:8:2.5": "an integer N of 2 to 10000",
        "count=1:8:1e9": "an integer N of 2 to 10000",
        "count=8:1:4": "A:B:N with A < B",
        "count=1:2:3:4": "expected numbers A:B",
        "count=a:b": "expected numbers A:B",
        "count=1:2:3": "expected integers for count, got '1.5'",
        "count=1,2.5": "expected integers for count, got '2.5'",
        "count=1,,2": "expected integers for count, got ''",
        "flag=true,1": "expected true or false for flag, got '1'",
    },
}


@pytest.mark.parametrize(
    ("option", "text", "sentence"),
    [(option, text, sentence) for option, each in WRONG.items() for text, sentence in each.items()],
)
def test_a_text_that_cannot_be_read_is_a_sentence(option: str, text: str, sentence: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        {"set": assignment, "sweep": variation}[option](text, KINDS)
    assert str(caught.value).startswith(f"{option}: ")
    assert sentence in str(caught.value)


def test_values_are_told_in_few_letters() -> None:
    texts = {300.0: "300", 0.25: "0.25", True: "true", None: "none", "csr": "csr", 1e-7: "1e-07"}
    assert {value: told(value) for value in texts} == texts


@dataclass(frozen=True)
class Inner:
    low: int = 1
    high: int = 2

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ArgumentError("low: expected at most high.")


@dataclass(frozen=True)
class Outer:
    name: str = "mine"
    inner: Inner = field(default_factory=Inner)
    parts: dict[str, Inner] = field(default_factory=lambda: {"a": Inner(), "b": Inner()})
    other: str = "x"


def test_nested_values_change_at_once_and_what_is_unchanged_stays_the_same_object() -> None:
    owner = Outer()
    assert list(kinds_of(owner)) == [
        "low",
        "high",
        *(f"parts.{k}.{n}" for k in "ab" for n in ("low", "high")),
        "other",
    ]
    assert changed(owner, {"unknown": 1}) is owner
    found = changed(owner, {"low": 5, "high": 6, "parts.b.high": 9})  # low alone would be above high
    assert found == Outer(inner=Inner(5, 6), parts={"a": Inner(), "b": Inner(1, 9)})
    assert found.parts["a"] is owner.parts["a"]
    with pytest.raises(ArgumentError, match="at most high"):
        changed(owner, {"low": 5})


def leaves(owner: Any) -> int:
    """The number of values in a dataclass, counted here without their names."""
    total = 0
    for entry in fields(owner):
        value = getattr(owner, entry.name)
        if isinstance(value, dict):
            total += sum(map(leaves, value.values()))
        elif is_dataclass(value):
            total += leaves(value)
        else:
            total += entry.name != "name"
    return total


OWNERS = {
    "ndp": (NearRank("grande_16").config, NdpPlan()),
    "pim": (upmem_v1a(), PimPlan()),
    "dram": (Memory(preset("DDR5_4800AN")), Access()),
}


@pytest.mark.parametrize("verb", OWNERS)
def test_no_two_values_of_a_simulator_have_one_name(verb: str) -> None:
    names = [name for owner in OWNERS[verb] for name in kinds_of(owner)]
    assert len(names) == len(set(names)) == sum(map(leaves, OWNERS[verb]))


GRAPH = "--graph twin:cora --scale 0.2 --width 16"
COMMON = {"ndp": GRAPH, "pim": f"{GRAPH} --plan 1x32", "dram": "--requests 1000"}
# The figures that a line of a sweep and the JSON of a run have in common.
FIGURES = {
    "ndp": ("time_ms", "speedup_over_baseline", "speedup_over_prior"),
    "pim": ("total_ms", "phases_ms", "energy_mj", "bytes", "plan"),
    "dram": ("cycles", "served", "time_ns", "energy_nj", "activations"),
}


def ran(verb: str, path: Path, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = written(path, "simulate", verb, COMMON[verb], *arguments)[0]
    return found


def figures(verb: str, line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in FIGURES[verb]}


# Machine files with other constants, and the options that take them.
_TOPOLOGY = "[topology]\nchannels = 4\ndimms_per_channel = 2\nranks_per_dimm = 2\n"
MACHINES = {
    "pim": ("--machine", 'base = "upmem_v1a"\nname = "m"\n[core]\nclock_mhz = 500\nedge_instructions = 20\n'),
    "ndp": ("--machine", f'name = "m"\n{_TOPOLOGY}[module]\nclock_mhz = 500\nbuffer_kib = 64\n'),
    "dram": ("--preset", to_toml(preset("DDR5_4800AN").with_timing(faw=32, rrd_s=9))),
}
CONSTANTS = {
    "pim": ("clock_mhz=500", "edge_instructions=20"),
    "ndp": ("clock_mhz=500", "buffer_kib=64"),
    "dram": ("faw=32", "rrd_s=9"),
}


@pytest.mark.parametrize("verb", CONSTANTS)
def test_a_value_that_is_set_or_varied_is_as_in_a_machine_file(verb: str, tmp_path: Path) -> None:
    path, machine = tmp_path / "out.json", tmp_path / "machine.toml"
    option, text = MACHINES[verb]
    machine.write_text(text)
    wanted = figures(verb, ran(verb, path, option, machine))
    first, second = CONSTANTS[verb]
    given = ran(verb, path, "--set", first, "--set", second)
    assert figures(verb, given) == wanted
    assert given["set"] == {
        name: float(value) for name, value in (each.split("=") for each in (first, second))
    }
    varied = ran(verb, path, "--set", first, "--sweep", second)
    assert [figures(verb, line) for line in varied["sweep"]] == [wanted]
    assert wanted != figures(verb, ran(verb, path))


PLANS = {
    "ndp": ("tile=32,64", "--tile 32", "--set tile=64"),
    "pim": ("tasklets=8,12", "--set tasklets=8", "--set tasklets=12"),
    "dram": ("run_bytes=128,256", "--run-bytes 128", "--set run_bytes=256"),
}
SECONDS = {"ndp": "lanes=8,16,32", "pim": "format=csr,coo", "dram": "scheduler=fr_fcfs,fr_fcfs_rows"}


@pytest.mark.parametrize("verb", PLANS)
def test_a_grid_has_a_run_for_every_pair(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    first, *alone = PLANS[verb]
    second = SECONDS[verb]
    found = ran(verb, path, "--sweep", first, "--sweep", second, "--grid")
    assert "sweep" not in found
    rows, columns = (text.partition("=")[2].split(",") for text in (first, second))
    places = [tuple(map(told, line["values"].values())) for line in found["grid"]]
    assert places == [(row, column) for row in rows for column in columns]
    assert {tuple(line["values"]) for line in found["grid"]} == {
        (first.partition("=")[0], second.partition("=")[0])
    }
    name = second.partition("=")[0]
    for at, options in enumerate(alone):
        for number, column in enumerate(columns):
            single = ran(verb, path, options, "--sweep", f"{name}={column}")["sweep"][0]
            assert figures(verb, found["grid"][at * len(columns) + number]) == figures(verb, single)


@pytest.mark.parametrize("verb", ["ndp", "pim", "dram"])
def test_the_terminal_shows_what_was_set_and_the_grid(verb: str) -> None:
    varied = {"ndp": ("lanes", "node_block"), "pim": ("clock_mhz", "call_us"), "dram": ("faw", "queue")}[verb]
    sweeps = " ".join(f"--sweep {name}=16,32" for name in varied)
    setting = {"ndp": "batch=64", "pim": "tasklets=8", "dram": "ranks=2"}[verb]
    result = onehop("simulate", verb, COMMON[verb], "--set", setting, sweeps, "--grid")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert f"with {setting}" in lines
    heading = " ".join(name.replace("_", " ") for name in varied)
    (at,) = (number for number, line in enumerate(lines) if line.startswith(heading))
    assert [line.split()[:2] for line in lines[at + 2 : at + 6]] == [
        [a, b] for a in ("16", "32") for b in ("16", "32")
    ]


def test_a_tuned_plan_has_what_was_set_and_is_the_best_of_those(tmp_path: Path) -> None:
    tuned = partial(ran, "pim", tmp_path / "out.json", "--plan tuned")
    free = tuned()
    plan = tuned("--set tasklets=10 --set format=coo")["plan"]
    assert (plan["tasklets"], plan["format"]) == (10, "coo")
    assert tuned(f"--set tasklets={free['plan']['tasklets']}")["plan"] == free["plan"]
    other = tuned("--set ds=16")
    assert (other["plan"]["sp"], other["plan"]["ds"]) == (2, 16)
    assert free["total_ms"] <= other["total_ms"]
    own = tuned("--set sp=8 --set ds=1")  # no grid that is searched
    assert (own["plan"]["sp"], own["plan"]["ds"]) == (8, 1)


def test_values_that_depend_on_each_other_are_set_together(tmp_path: Path) -> None:
    found = ran("dram", tmp_path / "out.json", "--set bl=16 --set burst_bytes=128")
    assert found["asked"]["timing"]["bl"] == 16


def test_cores_bring_their_ranks_unless_these_are_given_too(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert _changed(_Case(upmem_v1a()), {"cores": 498}).config.ranks == 8
    both = _changed(_Case(upmem_v1a()), {"cores": 498, "ranks": 16}).config
    assert (both.cores, both.ranks) == (498, 16)
    line = ran("pim", path, "--plan default --sweep cores=498")["sweep"][0]
    assert figures("pim", ran("pim", path, "--plan default --set cores=498")) == figures("pim", line)


def test_a_machine_shares_its_counts_with_those_that_count_alike() -> None:
    case = ndp_sweep.Case(NearRank("grande_16"), NdpPlan())
    assert ndp_sweep._changed(case, {"tile": 32}).machine is case.machine
    faster = ndp_sweep._changed(case, {"clock_mhz": 300.0})
    assert faster.machine.config.module.clock_mhz == 300
    assert faster.machine._workloads is case.machine._workloads
    assert ndp_sweep._changed(case, {"channels": 2}).machine._workloads is not case.machine._workloads
