"""What `make gpu` does, with steps in the place of a GPU's."""

import json
import sys

import pytest

from tests.scripts import load


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    module = load("gpu")
    monkeypatch.setattr(module, "OUT", tmp_path)
    monkeypatch.setattr(module, "missing_gpu", lambda: None)
    return module


def steps_that(module, monkeypatch, *steps):
    monkeypatch.setattr(module, "steps", lambda minutes: [module.Step(*each) for each in steps])


def python(program):
    return (sys.executable, "-c", program)


def test_without_a_gpu_one_sentence(capsys, monkeypatch):
    module = load("gpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert module.main([]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert "sees no GPU here" in line
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert module.main([]) == 2
    assert "has no torch; name a Python that has: make gpu GPU_PYTHON=" in capsys.readouterr().out


def test_a_step_that_fails_leaves_the_others(gpu, tmp_path, monkeypatch, capsys):
    failing, fine = python("print('worse'); raise SystemExit(3)"), python("print('one'); print('two')")
    steps_that(gpu, monkeypatch, ("first", failing, 60), ("second", fine, 60))
    assert gpu.main([]) == 1
    kept = json.loads((tmp_path / "verdict.json").read_text())
    assert [(each["name"], each["passed"], each["note"]) for each in kept] == [
        ("first", False, "worse"),
        ("second", True, "two"),
    ]
    assert (tmp_path / "second.log").read_text() == "one\ntwo\n"
    verdict = capsys.readouterr().out.split("== verdict\n")[1].splitlines()
    assert verdict[0].startswith("first              FAILED")
    assert verdict[1].startswith("second             passed")


def test_nothing_follows_a_step_that_is_needed(gpu, tmp_path, monkeypatch):
    marker = tmp_path / "reached"
    write = python(f"open({str(marker)!r}, 'w')")
    steps_that(gpu, monkeypatch, ("first", python("raise SystemExit(1)"), 60, True), ("second", write, 60))
    assert gpu.main([]) == 1
    assert not marker.exists()


def test_a_step_that_takes_too_long_is_ended(gpu, tmp_path, monkeypatch):
    slow = python("import time; print('begun', flush=True); time.sleep(60)")
    steps_that(gpu, monkeypatch, ("slow", slow, 1))
    assert gpu.main([]) == 1
    (kept,) = json.loads((tmp_path / "verdict.json").read_text())
    assert kept["note"] == "ended after 1 s; begun"


def test_all_that_passes_is_0(gpu, monkeypatch):
    steps_that(gpu, monkeypatch, ("only", python("print('fine')"), 60))
    assert gpu.main([]) == 0


def test_steps_come_in_their_order(gpu, monkeypatch):
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)
    names = [step.name for step in gpu.steps(10.0)]
    assert names[-4:] == ["extension", "kernels compiled", "tests", "benchmark"]
    monkeypatch.setattr(gpu.shutil, "which", lambda name: f"/bin/{name}")
    assert [step.name for step in gpu.steps(10.0)][-2:] == ["memory checked", "benchmark"]
    *_, benchmark = gpu.steps(10.0)
    assert "--resume" in benchmark.command


def test_wheels_leave_out_what_the_machine_has():
    found = load("gpu_wheels").packages()
    assert {"platformdirs", "pytest", "pluggy", "torch-geometric"} <= set(found)
    assert not {"torch", "triton", "numpy", "scipy"} & set(found)
    assert not [name for name in found if name.startswith("nvidia")]
