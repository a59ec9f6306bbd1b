"""The examples of docs/howto/ingest-a-file.md, which need the extra ingest."""

import re
from pathlib import Path

import pytest

from onehop import Graph

pytest.importorskip("duckdb", reason="the extra ingest is not installed")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "ingest-a-file.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```python no-run: needs the extra ingest\n(.*?)^```", PAGE.read_text(), re.M | re.S
    )
    assert len(blocks) == 1
    exec(compile(blocks[0], str(PAGE), "exec"), {"__name__": "example"})
    # ann, bob and cid are 0, 1 and 2.
    assert Graph.open("graph").load().edge_index().tolist() == [[1, 0, 2], [0, 1, 1]]


def test_rows_of_features_come_in_the_order_of_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    import onehop

    monkeypatch.chdir(tmp_path)
    Path("edges.csv").write_text("src,dst\nbob,ann\nann,bob\ncid,bob\n")
    onehop.ingest("edges.csv", "graph")
    query = re.search(r"`(SELECT .*?)`", PAGE.read_text(), re.S)
    assert query is not None
    with duckdb.connect() as connection:
        values = "(VALUES ('cid', 3.0), ('ann', 1.0), ('nobody', 9.0), ('bob', 2.0)) v(id, value)"
        connection.execute(f"COPY (SELECT * FROM {values}) TO 'features.parquet' (FORMAT parquet)")
        rows = connection.execute(query[1]).fetchall()
    assert [row[0] for row in rows] == ["ann", "bob", "cid"]
