import json
import re

import pytest
from rich.console import Console

from onehop.bench import plots, report
from onehop.bench.floors import PARTS, Breakdown
from onehop.bench.limits import Bandwidth, GatherRoof
from onehop.bench.models import ModelResult
from onehop.bench.ops import CaseResult, Summary
from onehop.bench.results import write_json
from onehop.bench.timing import Times
from tests.pictures import drawn, faults


def once(seconds):
    return Times((seconds,))


@pytest.fixture
def cases():
    return [
        CaseResult(
            graph,
            operation,
            width,
            Bandwidth(10**9, once(1.0)),
            87.0,
            times={"onehop": once(0.01), "torch-csr-int32": once(0.03), "scipy": once(0.1234)},
            skipped={"dgl": "is not here"},
            wrong={"numba": "is 0.5 off"} if width == 32 else {},
        )
        for graph in ("arxiv", "road")
        for operation in ("sum", "max")
        for width in (16, 32)
    ]


@pytest.fixture
def epochs():
    times = {"onehop": once(0.1), "pyg-edge_index": once(1.5)}
    losses = {name: [1.0] for name in times}
    return [ModelResult("arxiv", model, 32, losses, times=times) for model in ("gcn", "gin")]


@pytest.fixture
def streams():
    return {"read": Bandwidth(10**9, once(0.1)), "copy": Bandwidth(10**9, once(0.2))}


@pytest.fixture
def roofs():
    return [GatherRoof(width, 8, Bandwidth(10**9, once(0.5))) for width in (16, 32)]


def text_of(table):
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_the_table_of_operators_has_times_ratios_and_the_share_of_the_roof(cases):
    text = text_of(report.ops_table(cases[:4]))
    row = next(line for line in text.splitlines() if "sum 16" in line)
    cells = re.split(r"  +", row.strip())
    assert cells == ["sum 16", "10.0", "30.0", "123", "-", "3.00x", "3.00x", "87"]
    assert "wrong" in next(line for line in text.splitlines() if "sum 32" in line)


def test_the_summary_has_a_line_an_operation():
    text = text_of(report.summary_table([Summary("sum", 4, 1.7, 3.2, 1.1, "road 16, numba", 86.4)]))
    assert all(cell in text for cell in ("sum", "1.70x", "3.20x", "1.10x", "road 16, numba", "86"))


def test_the_table_of_models_has_the_speedup(epochs):
    assert "15.0x" in text_of(report.models_table(epochs))


def test_the_table_of_parts_has_shares_and_floors(epochs):
    shares = dict(zip(PARTS, (0.5, 0.25, 0.0, 0.25), strict=True))
    floor = dict(zip(PARTS, (0.025, 0.025, 0.0, 0.03), strict=True))
    epochs[0].breakdown = Breakdown(0.1, shares, floor)
    epochs[1].breakdown = Breakdown(0.1, shares)
    rows = text_of(report.parts_table(epochs)).splitlines()
    cells = re.split(r"  +", next(row for row in rows if "gcn" in row).strip())
    assert cells == [
        *("arxiv", "gcn", "32", "100", "1.25x"),
        *("50.0 (50%) 2.00x", "25.0 (25%) 1.00x", "0.000 (0%)", "25.0 (25%) 0.83x"),
    ]
    cells = re.split(r"  +", next(row for row in rows if "gin" in row).strip())
    assert cells[4:6] == ["-", "50.0 (50%)"]
    assert text_of(report.parts_table([ModelResult("arxiv", "sage", 32)])).count("sage") == 0


def test_the_tables_of_limits(streams, roofs, cases):
    text = text_of(report.limits_table(streams, roofs, "buffers"))
    assert "streaming copy" in text
    assert "gather of rows of 32 float32 (128 bytes)" in text
    assert "% of random" in text_of(report.roof_table(cases[:2], roofs))


def test_notes_count_what_was_left_out_and_name_what_was_wrong(cases):
    notes = report.notes(cases)
    assert "dgl left out: is not here (8 cases)" in notes
    assert "numba is WRONG on arxiv, sum 32, and not timed: is 0.5 off" in notes
    assert not report.onehop_is_wrong(cases)
    cases[0].wrong["onehop"] = "is off"
    assert report.onehop_is_wrong(cases)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.00012345, "0.123"), (0.0042, "4.20"), (0.0421, "42.1"), (1.4821, "1482")]
)
def test_milliseconds_have_three_digits(seconds, text):
    assert report.milliseconds(seconds) == text


def test_json_has_the_stamp(tmp_path, cases):
    path = tmp_path / "folder" / "ops.json"
    write_json(path, "bench ops", {"results": [case.to_dict() for case in cases]})
    document = json.loads(path.read_text())
    assert document["command"] == "bench ops"
    assert {"date", "machine", "isa", "threads", "versions"} <= set(document["stamp"])
    assert document["stamp"]["versions"]["torch"]
    assert document["results"][0]["best_peer"] == "torch-csr-int32"


def is_png(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_pictures_are_written(tmp_path, cases, epochs, streams, roofs):
    shares = dict(zip(PARTS, (0.5, 0.25, 0.0, 0.25), strict=True))
    epochs[0].breakdown = Breakdown(0.1, shares, dict(zip(PARTS, (0.025, 0.025, 0.0, 0.03), strict=True)))
    run = {"epoch_s": 1.0, "peak_bytes": 10**9}
    rows = [{"title": "GCN", "pyg": run, "onehop": {"epoch_s": 0.1, "peak_bytes": 10**9}}]
    with drawn() as figures:
        plots.plot_ops(cases, "a machine", tmp_path / "ops.png")
        plots.plot_models(epochs, "a machine", tmp_path / "models.png")
        plots.plot_parts([each.to_dict() for each in epochs], "a machine", tmp_path / "parts.png")
        plots.plot_limits(streams, roofs, cases[:2], "a machine", tmp_path / "limits.png")
        plots.plot_demo(rows, "a graph", "a machine", tmp_path / "new" / "demo.png")
    written = sorted(tmp_path.rglob("*.png"))
    assert len(written) == len(figures) == 5
    assert all(is_png(path) for path in written)
    assert [faults(figure) for figure in figures] == [[]] * 5
