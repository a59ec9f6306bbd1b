import json
import subprocess
import sys

import pytest
import torch

from onehop.bench import command, stamp
from onehop.bench.results import write_json
from onehop.cli.console import begin
from onehop.cli.info import OPTIONAL, facts


def test_the_stamp_is_json_and_names_machine_threads_and_versions():
    made = stamp.stamp()
    assert json.loads(json.dumps(made)) == made
    assert made["threads"] == torch.get_num_threads()
    assert made["versions"]["torch"] == torch.__version__
    assert made["machine"]["memory_bytes"] > 0


def test_the_machine_in_one_line():
    assert torch.__version__ in stamp.machine_line()
    assert "thread" in stamp.machine_line()
    assert stamp.machine_line(stamp.stamp()) == stamp.machine_line()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one commit of one file, instead of this one."""

    def git(*words):
        own = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *own, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    for name in ("code.py", "benchmarks/results/ops.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git("add", ".")
    git("commit", "-q", "-m", "First")
    monkeypatch.setattr(stamp, "ROOT", tmp_path)
    stamp.commit.cache_clear()
    yield tmp_path, git("rev-parse", "HEAD")
    stamp.commit.cache_clear()


def test_the_commit_and_whether_code_was_changed_since(checkout):
    folder, last = checkout
    assert stamp.stamp()["commit"] == {"hash": last, "changed": False}
    (folder / "benchmarks" / "results" / "ops.json").write_text("2\n")
    (folder / "notes.txt").write_text("new\n")
    stamp.commit.cache_clear()
    assert stamp.commit() == {"hash": last, "changed": False}
    (folder / "code.py").write_text("2\n")
    stamp.commit.cache_clear()
    assert stamp.commit() == {"hash": last, "changed": True}


@pytest.mark.parametrize(
    "start", [lambda: command.read(command.parser("A program."), []), lambda: begin(None)]
)
def test_a_run_names_the_commit_that_it_began_with(checkout, start):
    folder, last = checkout
    start()
    (folder / "code.py").write_text("2\n")
    assert stamp.stamp()["commit"] == {"hash": last, "changed": False}


def test_no_commit_without_git_and_outside_of_a_checkout(checkout, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    assert stamp.commit() is None
    monkeypatch.undo()
    monkeypatch.setattr(stamp, "ROOT", tmp_path_factory.mktemp("installed"))
    stamp.commit.cache_clear()
    assert stamp.stamp()["commit"] is None


def test_a_folder_that_only_looks_like_a_checkout_has_no_commit(monkeypatch, tmp_path):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(stamp, "ROOT", tmp_path)
    stamp.commit.cache_clear()
    assert stamp.commit() is None
    stamp.commit.cache_clear()


def test_arguments_name_no_folders_of_this_machine(monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["bench", "--rounds", "5", "--json", "/home/someone/ops.json", "a/b.json"]
    )
    assert stamp.stamp()["arguments"] == ["--rounds", "5", "--json", "ops.json", "a/b.json"]


@pytest.mark.parametrize(
    ("content", "requested", "rounds"),
    [
        ({"results": [{"times": {"pyg": {"rounds": 9}, "onehop": {"rounds": 5}}}]}, 3, [5, 9]),
        ({"results": [{"ratio": 1.5}]}, 3, [3, 3]),
        ({"results": []}, None, None),
    ],
)
def test_files_of_results_say_how_many_rounds_they_are_of(tmp_path, content, requested, rounds):
    write_json(tmp_path / "a.json", "bench", content, requested)
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["stamp"]["rounds"] == rounds
    assert document["command"] == "bench"
    assert {"commit", "arguments", "machine", "date"} <= set(document["stamp"])


def test_cache_sizes_are_read_in_bytes(tmp_path, monkeypatch):
    for number, (kind, level, size) in enumerate(
        [("Data", "1", "32K"), ("Instruction", "1", "32K"), ("Unified", "3", "24M")]
    ):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(value + "\n")
    monkeypatch.setattr(stamp, "CACHE_FOLDER", tmp_path)
    assert stamp.caches() == {"L1 data": 32 << 10, "L3": 24 << 20}
    assert stamp.last_level_cache_bytes() == 24 << 20


def test_facts_are_json_and_say_what_is_missing():
    found = facts()
    json.dumps(found)
    assert found["isa"] in found["isas"]
    assert found["backends"]["cpu"]["refuses_cpu_float32"] is None
    assert set(found["packages"]) == set(OPTIONAL)
    for package in found["packages"].values():
        assert (package["remedy"] is None) == package["present"]


def test_facts_tell_what_a_variable_amounts_to(monkeypatch):
    monkeypatch.setenv("ONEHOP_POOL_BYTES", "1000")
    monkeypatch.setenv("ONEHOP_CHECK", "sometimes")
    settings = facts()["settings"]
    assert settings["ONEHOP_POOL_BYTES"] == {"set_to": "1000", "effective": 1000}
    assert "must be 'version' or 'full'" in settings["ONEHOP_CHECK"]["error"]
