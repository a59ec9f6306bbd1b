import json
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest

from onehop.machines.dram import preset, to_toml
from tests.cli.running import written

KEYS = {"cycles", "served", "gbps", "percent_of_peak", "row_hits", "row_misses", "row_conflicts", "energy_nj"}


@pytest.fixture
def dram(tmp_path):
    """Runs ``simulate dram``; returns its JSON and what it prints."""
    return partial(written, tmp_path / "out.json", "simulate dram")


@pytest.mark.parametrize("level", ["command", "curve"])
def test_a_run_is_shown_and_written(dram, level):
    document, output = dram(
        "--preset DDR5_4800AN --pattern random --run-bytes 1024 --layout bg_first --requests 2000 --op write",
        f"--ranks 2 --level {level}",
    )
    assert "GB/s" in output
    assert set(document) >= KEYS
    assert document["served"] == 2000
    assert document["graph"] is None
    assert document["asked"]["op"] == "write"


def test_exported_requests_come_to_the_same_when_read_back(dram, tmp_path):
    trace = tmp_path / "a.trace"
    drawn, _ = dram("--requests 500 --export", trace)
    replayed, _ = dram("--replay", trace)
    assert {key: drawn[key] for key in KEYS} == {key: replayed[key] for key in KEYS}


def test_a_device_may_come_from_a_file_and_timings_from_the_command_line(dram, tmp_path):
    device = tmp_path / "mine.toml"
    device.write_text(to_toml(preset("DDR5_6400AN")))
    document, _ = dram("--preset", device, "--timing faw=32,rrd_s=8 --level curve")
    timing = document["asked"]["timing"]
    assert (timing["faw"], timing["rrd_s"], timing["cl"]) == (32, 8, 46)


def test_what_binds_is_shown_where_the_formula_knows(dram):
    document, output = dram("--requests 500")
    assert "rows (clocks a burst: bus 8.00, bank groups 8.00, rows 12.00, commands 5.00" in output
    assert (document["limits"]["binds"], document["limits"]["rows"]) == ("rows", 12)
    assert document["no_limits_because"] is None


@pytest.mark.parametrize("other", ["--close-after 1", "--write-share 0.5"])
def test_where_it_does_not_it_says_why(dram, other):
    document, output = dram("--requests 500", other)
    assert "the formula knows" in output
    assert document["limits"] is None
    assert document["no_limits_because"] in output


def test_a_sweep_varies_a_constant_by_itself(dram):
    alone = {
        ("faw", 32): "--timing faw=32",
        ("faw", 48): "--timing faw=48",
        **{("run_bytes", size): f"--run-bytes {size}" for size in (64, 128, 256)},
        **{("ranks", ranks): f"--ranks {ranks}" for ranks in (2, 4)},
    }
    swept, output = dram("--requests 3000 --sweep faw=32,48 --sweep run_bytes=64:256 --sweep ranks=2,4")
    found = {(line.pop("name"), line.pop("value")): line for line in swept["sweep"]}
    assert list(found) == list(alone)
    for (name, value), line in found.items():
        own, _ = dram("--requests 3000", alone[name, value])
        assert {key: own[key] for key in line} == line
        cells = [f"{value:g}", f"{line['gbps']:.2f}", f"{line['percent_of_peak']:.1f}"]
        assert " ".join([name.replace("_", " "), *cells]) in " ".join(output.split())


def test_a_graphs_edges_are_read_target_by_target(dram, tmp_path):
    edges, trace = tmp_path / "edges.csv", tmp_path / "reads.trace"
    edges.write_text("source,target\n2,0\n3,0\n0,1\n1,3\n")
    document, output = dram("--graph", edges, "--width 24 --requests 7 --export", trace)
    # Edges of a file go both ways: target 0 has the sources 1, 2 and 3, and target 1 has 0. 96 bytes are two
    # bursts, so the seventh is the first half of the fourth vector.
    reads = [int(line.split()[1], 0) // 64 for line in trace.read_text().splitlines()]
    assert reads == [2, 3, 4, 5, 6, 7, 0]
    assert document["served"] == 7
    assert document["asked"]["width"] == 24
    assert "width 24" in " ".join(output.split())


def test_the_timeline_has_every_burst_and_rows_that_are_open_around_it(dram, tmp_path):
    path = tmp_path / "timeline.json"
    document, _ = dram("--requests 800 --write-share 0.3 --trace", path)
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    data = sorted((e["ts"], e["dur"]) for e in spans if e["name"] in ("read", "write"))
    assert len(data) == document["served"]
    # A bus carries one burst at a time.
    assert all(begin + dur <= after + 1e-6 for (begin, dur), (after, _) in pairwise(data))
    rows = [event for event in spans if event["name"].startswith("row ")]
    assert len(rows) == document["activations"]
    assert max(e["ts"] + e["dur"] for e in spans) * 1e3 <= document["time_ns"] + 1e-3


def test_commands_are_those_of_the_run(dram, tmp_path):
    path = tmp_path / "all.csv"
    document, output = dram("--requests 300 --ranks 2 --commands", path)
    lines = [line.split(",") for line in path.read_text().splitlines()]
    commands = document["commands"]
    assert commands["counts"] == {
        name: n for name, n in Counter(line[1] for line in lines).items() if name != "END"
    }
    assert commands["counts"]["RD"] == document["served"] == commands["bursts"]
    assert commands["counts"]["ACT"] == document["activations"]
    assert int(lines[-1][0]) == document["cycles"] == commands["cycles"]
    assert {line[2] for line in lines} == {"0", "1"}
    assert "as DRAMPower has them (ACT" in " ".join(output.split())
