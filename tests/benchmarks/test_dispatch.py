"""The benchmark of kernels at torch's dispatcher, at its smallest."""

import json
import platform
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_geometric")

from benchmarks import harness
from benchmarks.calls import bench_dispatch, dispatch_cases, dispatch_operators

SIZES: dict[str, Any] = {
    "width": 8,
    "nodes": 50,
    "edges": 400,
    "table_rows": 60,
    "bags": 5,
    "product_rows": 32,
    "scale": 0.01,
    "hidden": 8,
}
TIMED = {"part", "case", "torch_s", "onehop_s", "ratio", "quartiles"}


def rows_of(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What the script writes."""
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    file = folder / "found.json"
    bench_dispatch.BENCHMARK.main([*sizes, *arguments, "--rounds", "1", "--json", str(file)])
    document = json.loads(file.read_text())
    assert {name: document[name] for name in SIZES} == SIZES
    found: list[dict[str, Any]] = document["results"]
    assert all(row["torch_s"] > 0 and row["onehop_s"] > 0 and row["ratio"] > 0 for row in found)
    return found


def test_small_calls_steps_and_large_calls(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = rows_of(tmp_path, "--parts", "small,steps,large")
    assert [(row["part"], row["case"]) for row in found] == [
        *(("small", case) for case in dispatch_cases.small_calls()),
        *(("steps", case) for case in dispatch_cases.STEPS),
        *(("large", case) for case in dispatch_cases.LARGE),
    ]
    of_small = TIMED | {"difference_s", "difference_quartiles", "control_s"}
    for row in found:
        assert set(row) == (of_small if row["part"] == "small" else TIMED | {"difference"})
        if row["part"] == "small":  # of one round
            assert row["difference_s"] == pytest.approx(row["onehop_s"] - row["torch_s"])
    printed = capsys.readouterr().out
    assert all(row["case"] in printed for row in found)


def test_products_of_halves_without_instructions_for_them() -> None:
    order = {**SIZES, "part": "halves", "processor": "AVX2", "rounds": 1, "threads": 1}
    found = harness.apart(bench_dispatch.measured, order, **bench_dispatch.PROCESSORS["AVX2"])
    products = [f"ogb-gcn, {precision}" for precision in ("float32", "bfloat16")]
    assert [row["case"] for row in found] == [*dispatch_cases.products(SIZES["product_rows"]), *products]
    of_all = TIMED | {"processor", "capability", "instructions"}
    for row in found:
        assert set(row) == of_all | {"float32" if row["case"] in products else "difference"}
    assert found[-2]["float32"] == 1
    if platform.machine() == "x86_64":
        assert all(row["instructions"] == {"bfloat16": False, "float16": False} for row in found)


def test_break_even(in_process: None, tmp_path: Path) -> None:
    small = "--parts break-even --operators index,index:mask,mm --degrees 2,4"
    found = rows_of(tmp_path, *small.split())
    about = {"of_threshold", "size", "degree", "served", "difference"}
    assert all(set(row) == TIMED | about for row in found)
    assert [(row["case"], row["degree"], row["of_threshold"]) for row in found] == [
        (case, degree, times)
        for case, degrees in (("index", (2, 4)), ("index:mask", (1,)), ("mm", (1,)))
        for degree in degrees
        for times in bench_dispatch.TIMES
    ]
    assert all(row["served"] == (row["of_threshold"] >= 1) for row in found if row["case"] != "mm")


@pytest.mark.parametrize("name", dispatch_operators.BY_INDEX)
def test_operators_are_served_from_their_thresholds_on(name: str) -> None:
    """The benchmark repeats what csrc/bindings/torch_kernels.cpp has."""
    width = 64
    least = dispatch_operators.threshold(name, width)
    for size, expected in ((least, True), (least - width, False)):
        # Extrema that include the result's own numbers are served where each row has many.
        case = dispatch_operators.ready(name, size, width, degree=12)
        assert bench_dispatch.is_served(case) is expected, f"{size} numbers"


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(SystemExit, match="unknown tanh; there are index, "):
        bench_dispatch.BENCHMARK.read(["--operators", "tanh"])
