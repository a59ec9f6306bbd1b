"""The harness of the scripts: options, rows, columns, turns."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import columns, harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.tables import Table


def rows(options: Options) -> Iterator[Row]:
    """Two rows."""
    options.noted["speed"] = 3.5
    for layer in options.layers:
        yield {
            "layer": layer,
            "seconds": {"pyg": 0.002 * options.width},
            "ratio": 2.0,
            "quartiles": [1.5, 2.5],
        }


SMALL = Benchmark(
    "bench small",
    rows,
    "layer; PyG, ms | seconds/pyg | ms; over PyG | ratio | gain quartiles; memory | peak/pyg | MiB",
    {
        "layers": Option(("gcn", "gat"), known=("gcn", "gat")),
        "width": 16,
        "quick": False,
        "p": (0.5,),
        "file": None,
    },
    kept=("width",),
    finish=lambda options, rows: {"count": len(rows)},
    notes=lambda options, rows: [f"{options.noted['count']} layers [measured]"],
)


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ([], "layers", ["gcn", "gat"]),
        (["--layers", "gat"], "layers", ["gat"]),
        (["--layers", "gcn,gat"], "layers", ["gcn", "gat"]),
        (["--layers", "gcn", "gat"], "layers", ["gcn", "gat"]),
        (["--layers"], "layers", []),
        (["--width", "8"], "width", 8),
        (["--quick"], "quick", True),
        (["--p", "0.1,0.2"], "p", [0.1, 0.2]),
        (["--file", "x"], "file", "x"),
    ],
)
def test_options_are_read_by_their_defaults(arguments: list[str], name: str, value: Any) -> None:
    assert getattr(SMALL.read(arguments), name) == value


def test_unknown_names_are_answered_with_the_list() -> None:
    with pytest.raises(SystemExit, match="--layers: unknown sage; there are gcn, gat"):
        SMALL.read(["--layers", "gcn,sage"])


def test_rows_are_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "small.json"
    found = SMALL.main(["--json", str(file), "--width", "2"])
    document = json.loads(file.read_text())
    assert document["command"] == "bench small"
    assert document["results"] == found
    assert {key: document[key] for key in ("width", "speed", "count")} == {
        "width": 2,
        "speed": 3.5,
        "count": 2,
    }
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == ["layer", "PyG,", "ms", "over", "PyG", "memory"]
    assert printed[2].split() == ["gcn", "4.00", "2.00x", "(1.50x", "to", "2.50x)"]
    assert printed[-1] == "2 layers [measured]"


def test_what_was_measured_before_an_error_is_kept(tmp_path: Path) -> None:
    def failing(options: Options) -> Iterator[Row]:
        yield {"layer": "gcn"}
        raise ValueError("the second layer")

    file = tmp_path / "small.json"
    with pytest.raises(ValueError, match="the second layer"):
        Benchmark("bench", failing, "layer").main(["--json", str(file)])
    assert json.loads(file.read_text())["results"] == [{"layer": "gcn"}]


def test_forms_of_columns() -> None:
    spread = {"median": 12.34, "lower_quartile": 1.0, "upper_quartile": 123.4, "rounds": 5}
    row = {"name": "a|b", "s": 1.5, "short": 0.0001234, "none": None, "is": True, "list": [1, 2]}
    text = (
        "name; s | s | ms; short | short | ms; none | none | x; spread | spread | gain; wrong | is | wrong; "
        "is | is | yes or no; list | list | list; second | list/1 | {:.1f}; missing | none/y | ms"
    )
    (cells,) = Table(columns.of(text), [{**row, "spread": spread}]).cells()
    assert cells == [
        "a|b", "1500", "0.123", "", "12.3x (1.00x to 123x)", "WRONG", "yes", "1, 2", "2.0", "",
    ]  # fmt: skip
    (few,) = Table(columns.of("spread | spread | gain"), [{"spread": {**spread, "rounds": 4}}]).cells()
    assert few == ["12.3x"]
    of_rows = columns.of("gain | ratio | gain quartiles")
    assert Table(of_rows, [{"ratio": 2.0, "quartiles": None}]).cells() == [["2.00x"]]


def test_ways_take_turns_inside_their_contexts() -> None:
    order: list[str] = []

    @contextlib.contextmanager
    def way(name: str) -> Iterator[None]:
        order.append(name)
        yield
        order.append(f"/{name}")

    def turn() -> float:
        order.append("turn")
        return 2.0 if order[-2] == "b" else 1.0

    times = harness.in_ways({"a": lambda: way("a"), "b": lambda: way("b")}, turn, rounds=2)
    assert order == ["a", "turn", "/a", "b", "turn", "/b"] * 2
    assert [each.seconds for each in times.values()] == [(1.0, 1.0), (2.0, 2.0)]


def test_differences_are_relative_to_the_largest_of_a_kind() -> None:
    expected = [torch.tensor([10.0, 0.0]), torch.tensor([4.0]), torch.tensor([0.0])]
    assert harness.apart_by([torch.tensor([11.0, 0.0]), *expected[1:]], expected) == pytest.approx(0.1)
    assert harness.apart_by([*expected[:2], torch.tensor([1.0])], expected) == pytest.approx(0.25)
    assert harness.must_agree(0.1, 0.2, "a gradient") == 0.1
    for difference in (0.3, float("nan")):
        with pytest.raises(SystemExit, match="a gradient differs by"):
            harness.must_agree(difference, 0.2, "a gradient")
