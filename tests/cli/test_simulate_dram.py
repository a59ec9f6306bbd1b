import json

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
        (["--timing", "fow=3"], "no fow"),
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
