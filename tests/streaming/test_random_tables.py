"""One hundred random tables through ``onehop.ingest``; ``make fuzz-ingest`` runs thousands."""

from pathlib import Path

import pytest

from tests.streaming import random_tables

pytest.importorskip("duckdb", reason="the extra ingest is not installed")
pytest.importorskip("pyarrow", reason="pyarrow writes the tables")


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_random_tables(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = set()
    for seed in range(first, first + 50):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with monkeypatch.context() as patch:
            if seed % 2:
                random_tables.small_buffers(patch.setattr)
            table = random_tables.drawn(seed, folder, 60)
            outcomes.add(random_tables.check(table, folder / "graph"))
    assert outcomes == {"read", "refused"}
