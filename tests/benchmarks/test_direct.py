"""The benchmark of functions that models call themselves, at its smallest."""

import json
from pathlib import Path

from tests.processes import run_python

SCRIPT = ("-m", "benchmarks.layers.bench_direct")


def test_every_function_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "direct.json"
    options = ("--rows", "600", "--width", "4", "--rounds", "1", "--json", str(file))
    done = run_python([*SCRIPT, *options])
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["results"]
    assert len(rows) == 13
    assert not any(row["wrong"] for row in rows)
    assert "softmax (fresh)" in done.stdout
