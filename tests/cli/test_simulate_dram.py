import json
from collections import Counter
from itertools import pairwise

import pytest

from onehop.machines.dram import preset, to_toml
from tests.cli.running import onehop

KEYS = {"cycles", "served", "gbps", "percent_of_peak", "row_hits", "row_misses", "row_conflicts", "energy_nj"}


@pytest.mark.parametrize("level", ["command", "curve"])
def test_a_run_is_shown_and_written(tmp_path, level):
    path = tmp_path / "dram.json"
    result = onehop(
        *("simulate", "dram", "--preset", "DDR5_4800AN", "--pattern", "random", "--run-bytes", 1024),
        *("--layout", "bg_first", "--requests", 2000, "--op", "write", "--ranks", 2, "--level", level),
        *("--json", path),
    )
    assert result.exit_code == 0
    assert "GB/s" in result.stdout
    document = json.loads(path.read_text())
    assert set(document) >= KEYS
    assert document["served"] == 2000
    assert document["graph"] is None
    assert document["asked"]["op"] == "write"


def test_exported_requests_come_to_the_same_when_read_back(tmp_path):
    trace, first, second = (tmp_path / name for name in ("a.trace", "a.json", "b.json"))
    assert onehop("simulate", "dram", "--requests", 500, "--export", trace, "--json", first).exit_code == 0
    assert onehop("simulate", "dram", "--replay", trace, "--json", second).exit_code == 0
    documents = [json.loads(path.read_text()) for path in (first, second)]
    assert {key: documents[0][key] for key in KEYS} == {key: documents[1][key] for key in KEYS}


def test_a_device_may_come_from_a_file_and_timings_from_the_command_line(tmp_path):
    device, path = tmp_path / "mine.toml", tmp_path / "out.json"
    device.write_text(to_toml(preset("DDR5_6400AN")))
    result = onehop(
        "simulate",
        "dram",
        "--preset",
        device,
        "--timing",
        "faw=32,rrd_s=8",
        "--level",
        "curve",
        "--json",
        path,
    )
    assert result.exit_code == 0
    timing = json.loads(path.read_text())["asked"]["timing"]
    assert (timing["faw"], timing["rrd_s"], timing["cl"]) == (32, 8, 46)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--preset", "DDR6"], "preset: expected one of"),
        (["--preset", "absent.toml"], "absent.toml: no such file"),
        (["--replay", "/"], "/: cannot be read or written"),
        (["--json", "/proc/none/out.json"], "/proc/none"),
        (["--pattern", "zigzag"], "pattern: expected one of"),
        (["--run-bytes", "0"], "run_bytes: expected"),
        (["--requests", "0"], "requests: expected"),
        (["--ranks", "3"], "ranks: expected a power of two"),
        (["--level", "gate"], "level: expected one of"),
        (["--level", "closed"], "take command or curve"),
        (["--timing", "faw"], "--timing: expected"),
        (["--timing", "fow=3"], "timing: unknown key fow; expected clock_ps"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(arguments, sentence):
    result = onehop("simulate", "dram", *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_recorded_trace_needs_the_command_level(tmp_path):
    trace = tmp_path / "a.trace"
    trace.write_text("LD 0\n")
    result = onehop("simulate", "dram", "--replay", trace, "--level", "curve")
    assert result.exit_code == 2
    assert "level: expected command" in result.stderr


def test_what_binds_is_shown_where_the_formula_knows(tmp_path):
    path = tmp_path / "out.json"
    result = onehop("simulate", "dram", "--requests", 500, "--json", path)
    assert "rows (clocks a burst: bus 8.00, bank groups 8.00, rows 12.00, commands 5.00" in result.stdout
    document = json.loads(path.read_text())
    assert (document["limits"]["binds"], document["limits"]["rows"]) == ("rows", 12)
    assert document["no_limits_because"] is None


@pytest.mark.parametrize("other", [["--close-after", 1], ["--write-share", 0.5]])
def test_where_it_does_not_it_says_why(tmp_path, other):
    path = tmp_path / "out.json"
    result = onehop("simulate", "dram", "--requests", 500, "--json", path, *other)
    assert "the formula knows" in result.stdout
    document = json.loads(path.read_text())
    assert document["limits"] is None
    assert document["no_limits_because"] in result.stdout


def written(path, *arguments):
    result = onehop("simulate", "dram", *arguments, "--json", path)
    assert result.exit_code == 0, result.output
    return json.loads(path.read_text()), result.output


def test_a_sweep_varies_a_constant_by_itself(tmp_path):
    small = ("--requests", 3000)
    swept, output = written(
        tmp_path / "sweep.json",
        *small,
        "--sweep",
        "faw=32,48",
        "--sweep",
        "run_bytes=64:256",
        "--sweep",
        "ranks=2,4",
    )
    values = [(line["name"], line["value"]) for line in swept["sweep"]]
    assert values == [
        *(("faw", clocks) for clocks in (32, 48)),
        *(("run_bytes", size) for size in (64, 128, 256)),
        *(("ranks", ranks) for ranks in (2, 4)),
    ]
    given = (["--timing", "faw=32"], ["--timing", "faw=48"], *(["--run-bytes", n] for n in (64, 128, 256)))
    given = (*given, ["--ranks", 2], ["--ranks", 4])
    for number, (line, options) in enumerate(zip(swept["sweep"], given, strict=True)):
        alone, _ = written(tmp_path / f"{number}.json", *small, *options)
        assert {name: alone[name] for name in line if name not in ("name", "value")} == {
            name: each for name, each in line.items() if name not in ("name", "value")
        }
    for line in swept["sweep"]:
        cells = [f"{line['value']:g}", f"{line['gbps']:.2f}", f"{line['percent_of_peak']:.1f}"]
        assert " ".join([line["name"].replace("_", " "), *cells]) in " ".join(output.split())


def test_a_graphs_edges_are_read_target_by_target(tmp_path):
    edges, trace = tmp_path / "edges.csv", tmp_path / "reads.trace"
    edges.write_text("source,target\n2,0\n3,0\n0,1\n1,3\n")
    document, output = written(
        tmp_path / "graph.json", "--graph", edges, "--width", 24, "--requests", 7, "--export", trace
    )
    # Edges of a file go both ways: target 0 has the sources 1, 2 and 3, and target 1 has 0. 96 bytes are two
    # bursts, so the seventh is the first half of the fourth vector.
    reads = [int(line.split()[1], 0) // 64 for line in trace.read_text().splitlines()]
    assert reads == [2, 3, 4, 5, 6, 7, 0]
    assert document["served"] == 7
    assert document["asked"]["width"] == 24
    assert "width 24" in " ".join(output.split())


def test_the_timeline_has_every_burst_and_rows_that_are_open_around_it(tmp_path):
    path = tmp_path / "timeline.json"
    document, _ = written(tmp_path / "run.json", "--requests", 800, "--write-share", 0.3, "--trace", path)
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    data = sorted((e["ts"], e["dur"]) for e in spans if e["name"] in ("read", "write"))
    assert len(data) == document["served"]
    # A bus carries one burst at a time.
    assert all(begin + dur <= after + 1e-6 for (begin, dur), (after, _) in pairwise(data))
    rows = [event for event in spans if event["name"].startswith("row ")]
    assert len(rows) == document["activations"]
    assert max(e["ts"] + e["dur"] for e in spans) * 1e3 <= document["time_ns"] + 1e-3


def test_commands_are_those_of_the_run(tmp_path):
    path = tmp_path / "all.csv"
    document, output = written(tmp_path / "run.json", "--requests", 300, "--ranks", 2, "--commands", path)
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--commands", "all.csv", "--level", "curve"], "expected command, which alone knows"),
        (["--commands", "all.csv", "--sweep", "faw=32,48"], "commands: a sweep has several"),
        (["--commands", "all.txt"], "commands: expected the name of a file that ends in"),
        (["--commands", "all.csv", "--preset", "HBM3_6400"], "HBM3_6400 has two"),
        (["--commands", "all.csv", "--requests", "11000000"], "would fill up to 0.9 GB"),
        (["--commands", "."], "commands: cannot write"),
        (["--sweep", "faw=32.5"], "expected integers for faw"),
        (["--sweep", "speed=1,2"], "sweep: expected NAME=A:B"),
        (["--sweep", "faw=32,48", "--trace", "t.json"], "a sweep has no timeline"),
        (["--sweep", "faw=32,48", "--export", "t.trace"], "a sweep has several lists of requests"),
        (["--graph", "twin:cora", "--sweep", "run_bytes=64,128"], "these requests are given"),
        (["--graph", "twin:cora", "--replay", "t.trace"], "give one of them"),
        (["--graph", "twin:cora", "--level", "curve"], "expected command"),
        (["--sweep", "ranks=3,4"], "ranks: expected"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = onehop("simulate", "dram", *arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
