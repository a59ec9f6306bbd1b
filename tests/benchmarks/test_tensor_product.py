"""The benchmark of tensor products at its smallest."""

import json
from pathlib import Path

import pytest

from benchmarks.equivariant.bench_tensor_product import PASSES, call, paths_of
from tests.processes import run_python


def test_paths_have_the_parity_of_harmonics() -> None:
    assert paths_of(4, 1).out_irreps == "4x0e+4x1o+4x1o+4x0e"
    assert len(paths_of(128, 2).paths) == 7


@pytest.mark.parametrize("which", PASSES)
def test_both_orders_have_results_of_the_same_shapes(which: str) -> None:
    order = {"nodes": 5, "neighbours": 3, "channels": 4, "degree": 2, "pass": which}
    shapes = [[each.shape for each in call(order | {"way": way})()] for way in ("onehop", "components-first")]
    assert shapes[0] == shapes[1]
    assert len(shapes[0]) == (1 if which == "forward" else 3)


def test_the_script(tmp_path: Path) -> None:
    pytest.importorskip("e3nn")
    small = "--degrees 1 --nodes 9 --neighbours 3 --channels 4 --ways e3nn,onehop --rounds 1"
    file = tmp_path / "found.json"
    script = ["-m", "benchmarks.equivariant.bench_tensor_product", *small.split(), "--json", str(file)]
    done = run_python(script)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert [row["pass"] for row in found["results"]] == list(PASSES)
    for row in found["results"]:
        assert set(row["seconds"]) == set(row["peak_bytes"]) == {"e3nn", "onehop"}
        assert row["speedup"] > 0
        assert not row["failed"]
