"""The harness that runs PyG's examples: loops, verdicts, whole scripts of ours."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("torch_geometric")

from benchmarks.examples import __main__ as program, differences, running
from benchmarks.examples.child import in_a_line
from benchmarks.examples.loops import Channel, lines_of_loops, replacement
from benchmarks.examples.peaks import peaks
from benchmarks.examples.running import OURS, PYG, Effort
from benchmarks.examples.scripts import EXAMPLES, Example
from benchmarks.examples.turns import FIRST, GRADIENTS, LATER, LEAST_ROUNDS, measured
from benchmarks.examples.verdicts import reason, verdict
from tests.processes import Forked


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("for epoch in range(3):\n    for i in range(2):\n        pass", {1}),
        ("def main():\n    for epoch in tqdm(range(1, 4)):\n        pass", {2}),
        ("for i in range(3):\n    pass\nfor epoch in range(2):\n    pass", {3}),
        ("for _ in range(3):\n    pass\nfor _ in range(\n    4,\n):\n    pass", {1, 3}),
        ("if x:\n    for target in range(12):\n        pass", {2}),
        ("class A:\n    def f(self):\n        for i in range(3):\n            pass", set()),
        ("for epoch in loader:\n    pass\nnumbers = range(3)", set()),
    ],
)
def test_loops_over_epochs_are_found(source: str, lines: set[int]) -> None:
    assert lines_of_loops(source) == lines


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    one, other = socket.socketpair()
    for each in (one, other):
        each.settimeout(20)
    with one, other:
        yield Channel(one), Channel(other)


def executed(
    source: str, channels: tuple[Channel, Channel], answers: list[int]
) -> tuple[dict[str, Any], list[str]]:
    """Runs a text with its loops, answering as given; returns its globals and the events."""
    ours, theirs = channels
    names: dict[str, Any] = {"range": replacement(source, theirs, lambda answer: None)}
    events: list[str] = []

    def answer() -> None:
        remaining = iter(answers)
        while True:
            message = ours.receive()
            events.append(message["event"])
            if message["event"] == "end":
                return
            if message["event"] != "left":
                ours.send(epochs=next(remaining))

    other_side = threading.Thread(target=answer)
    other_side.start()
    exec(compile(source, "script", "exec"), names)
    theirs.send(event="end")
    other_side.join()
    return names, events


def test_a_loop_ends_when_it_is_told_to(channels: tuple[Channel, Channel]) -> None:
    source = "seen = []\nfor epoch in range(1, 100):\n    seen.append(epoch)\nlast = list(range(3))"
    names, events = executed(source, channels, [2, 3, 0])
    assert names["seen"] == [1, 2, 3, 4, 5]
    assert names["last"] == [0, 1, 2]
    assert events == ["loop", "epochs", "epochs", "end"]


def test_a_loop_that_ends_by_itself_says_so(channels: tuple[Channel, Channel]) -> None:
    source = "seen = []\nfor epoch in range(9):\n    seen.append(epoch)\n    if epoch == 2:\n        break"
    names, events = executed(source, channels, [2, 5])
    assert names["seen"] == [0, 1, 2]
    assert events == ["loop", "epochs", "left", "end"]


def test_a_loop_is_not_made_longer(channels: tuple[Channel, Channel]) -> None:
    names, events = executed("for epoch in range(3):\n    last = epoch", channels, [50])
    assert names["last"] == 2
    assert events == ["loop", "left", "end"]


def ran(**changes: Any) -> dict[str, Any]:
    layers = [{"class": "GCNConv", "path": "fast", "calls": 3, "reason": None}]
    deviation = {"first": 0.0, "largest": 1e-6}
    usual = {"failed": {}, "deviation": deviation, "gradients": 1e-7, "layers": layers}
    return {**usual, "speedup": {"median": 1.0}, "losses": {PYG: 3, OURS: 3}, **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "same"),
        ({"speedup": {"median": 1.5}}, "faster"),
        ({"speedup": {"median": 0.96}}, "slower"),
        ({"layers": [{"reason": "too small"}]}, "refused"),
        ({"layers": [{"reason": "too small"}], "speedup": {"median": 0.5}}, "slower"),
        ({"layers": [], "speedup": {"median": 4.0}}, "faster"),
        ({"deviation": {"first": 1e-4, "largest": 1e-4}}, "different losses"),
        ({"deviation": {"first": 0.0, "largest": 0.5}}, "different losses"),
        ({"deviation": None}, "different losses"),
        ({"gradients": 0.01}, "different losses"),
        ({"gradients": None}, "different losses"),
        ({"failed": {OURS: "Error: x"}}, "broken"),
        ({"failed": {PYG: "Error: x"}}, "only with onehop"),
        ({"failed": {PYG: "Error: x", OURS: "Error: x"}}, "does not run here"),
    ],
)
def test_verdicts(changes: dict[str, Any], said: str) -> None:
    assert verdict(ran(**changes)) == said


def test_reasons() -> None:
    assert reason({**ran(), "verdict": "same"}) == ""
    assert reason({**ran(failed={PYG: "one", OURS: "two"}), "verdict": "does not run here"}) == "two"
    found = ran(deviation=None, losses={PYG: 3, OURS: 4})
    assert reason({**found, "verdict": verdict(found)}) == "3 losses, with onehop 4"


def test_errors_are_said_in_a_line() -> None:
    assert in_a_line(ValueError("one\ntwo")) == "ValueError: one"
    assert in_a_line(ValueError()) == "ValueError: "
    met = "Caught ImportError in DataLoader worker process 0.\nTraceback ...\nImportError: needs pyg-lib\n"
    assert in_a_line(ImportError(met)) == "ImportError: needs pyg-lib"


def test_losses_are_compared_one_by_one() -> None:
    nan = float("nan")
    of = differences.of_losses
    assert of([1.0, 2.0, 4.0], [1.0, 2.0, 5.0]) == {"first": 0.0, "largest": pytest.approx(0.2)}
    assert of([nan, 2.0], [nan, 2.0]) == {"first": 0.0, "largest": 0.0}
    assert of([nan], [2.0]) is None
    assert of([1.0], [1.0, 2.0]) is None
    assert of([], []) is None


def test_gradients_are_compared_by_parameter() -> None:
    of, weight, bias = differences.of_gradients, torch.tensor([3.0, 4.0]), torch.tensor([1e-9])
    assert of([[weight, None]], [[weight.clone(), None]]) == 0
    assert of([[weight, None]], [[weight * 1.01, None]]) == pytest.approx(0.01, rel=1e-3)
    assert of([[weight, bias]], [[weight, -bias]]) == pytest.approx(2e-9 / 5e-3, rel=1e-3)
    assert of([[weight]], [[weight * float("nan")]]) == float("inf")
    assert of([[weight, bias]], [[weight, None]]) is None
    assert of([[weight]], []) is None
    sparse = torch.eye(3).to_sparse()
    assert of([[sparse]], [[torch.eye(3)]]) == 0


def test_gradients_of_a_set_of_parameters_have_no_order() -> None:
    matrix, vector = torch.tensor([[1.0, 2.0]]), torch.tensor([3.0, 4.0])
    assert differences.of_gradients([[matrix, vector, None]], [[None, vector, matrix]]) == 0
    assert differences.of_gradients([[matrix, vector]], [[2 * vector, matrix]]) == pytest.approx(1, rel=1e-6)
    assert differences.of_gradients([[matrix, vector]], [[vector, vector]]) is None


SCRIPT = """
import sys
import torch
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCNConv, SAGEConv

data = Planetoid("nowhere", "Cora")[0]
first, second = GCNConv(1433, 16), SAGEConv(16, 7, aggr="median")
optimiser = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for epoch in range(1, 40):
    optimiser.zero_grad()
    out = second(first(data.x, data.edge_index).relu(), data.edge_index)
    loss = torch.nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    AFTER
    loss.backward()
    optimiser.step()
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(after: str) -> Path:
        folder = tmp_path / "examples"
        folder.mkdir()
        (folder / "gcn.py").write_text(SCRIPT.replace("AFTER", after))
        return tmp_path

    return write


@pytest.fixture
def forked_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts in processes that have imported torch and PyG; one test starts them as users do."""

    def start(command: list[str], pass_fds: list[int], stdout: Any, **more: Any) -> Forked:
        with Path(os.devnull).open() as nothing:
            return Forked(command[1:], more["cwd"], more["env"], nothing, stdout, stdout, passed=pass_fds)

    stand_in = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(running, "subprocess", stand_in)


@pytest.mark.usefixtures("forked_scripts")
def test_a_script_is_measured_both_ways(
    written: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, file = written("pass"), tmp_path / "found.json"
    options = f"--source {source} --scripts gcn.py --rounds 2 --threads 1 --json {file}".split()
    monkeypatch.setattr(sys, "argv", ["examples", *options])
    program.main()
    (found,) = json.loads(file.read_text())["scripts"]
    assert found["verdict"] in ("same", "faster", "slower")
    assert found["losses"][PYG] == found["losses"][OURS] >= 2 + 2
    assert found["times"][PYG]["rounds"] == found["times"][OURS]["rounds"] == 2
    assert {layer["class"]: layer["reason"] is None for layer in found["layers"]} == {
        "GCNConv": True,
        "SAGEConv": False,
    }
    for way in (PYG, OURS):
        assert len(found["peaks_bytes"][way]) == 3
        assert max(found["peaks_bytes"][way]) >= found["peak_bytes"][way] >= found["before_bytes"][way] > 0
    # Going on finds that nothing is left; with other options it is another run.
    written_at = file.stat().st_mtime_ns
    sys.argv.append("--resume")
    program.main()
    assert file.stat().st_mtime_ns == written_at
    sys.argv += ["--rounds", "3"]
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert "is of another run, whose effort differ" in capsys.readouterr().err


def test_loops_end_early_once_the_seconds_of_a_script_are_spent(written: Callable[[str], Path]) -> None:
    found = measured(Example("gcn.py"), written("pass"), Effort(rounds=50, budget_s=0.0, limit_s=100))
    assert found["times"][PYG]["rounds"] == found["times"][OURS]["rounds"] == LEAST_ROUNDS


def test_going_on_needs_a_file(
    written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["examples", "--source", str(written("pass")), "--resume"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert "expected --json FILE" in capsys.readouterr().err


@pytest.mark.usefixtures("forked_scripts")
def test_a_script_that_the_patch_breaks_is_found(written: Callable[[str], Path]) -> None:
    source = written('assert epoch < 2 or not __import__("onehop").patched(), "broken by the patch"')
    found = measured(Example("gcn.py"), source, Effort(rounds=2, limit_s=100))
    assert found["failed"] == {OURS: "AssertionError: broken by the patch"}
    assert verdict(found) == "broken"
    assert peaks(Example("gcn.py"), source, Effort(limit_s=100)) == {"failed": found["failed"]}


CHAOS = "loss = loss * (1 + (epoch > 2) * (1e8 * second.lin_l.weight.detach().double().sum() % 1))"
DOUBLED = "loss = loss * (1 + (epoch > 2) * bool(__import__('onehop').patched()))"


@pytest.mark.usefixtures("forked_scripts")
@pytest.mark.parametrize(("after", "drifts"), [(CHAOS, True), (DOUBLED, False)])
def test_losses_that_a_rounding_alone_changes_are_told_from_wrong_ones(
    written: Callable[[str], Path], after: str, drifts: bool
) -> None:
    found = measured(Example("gcn.py"), written(after), Effort(rounds=4, budget_s=60, limit_s=100))
    assert found["deviation"]["first"] <= FIRST < LATER < found["deviation"]["largest"]
    assert (found["drift"]["largest"] > LATER) == drifts
    assert (verdict(found) == "different losses") != drifts
    assert drifts or "PyG's own after a rounding by" in reason({**found, "verdict": verdict(found)})


WRONG = "loss = loss * (1 + 0.05 * bool(__import__('onehop').patched()))"
# As where a standard deviation is of numbers that are the same but for rounding.
TIED = WRONG + " * (1 + (1e8 * second.lin_l.weight.detach().double().sum() % 1))"


@pytest.mark.usefixtures("forked_scripts")
@pytest.mark.parametrize(("after", "drifts"), [(TIED, True), (WRONG, False)])
def test_a_first_loss_that_a_rounding_alone_changes_says_nothing(
    written: Callable[[str], Path], after: str, drifts: bool
) -> None:
    found = measured(Example("gcn.py"), written(after), Effort(rounds=3, budget_s=60, limit_s=100))
    assert found["deviation"]["first"] > FIRST
    assert found["gradients"] > GRADIENTS
    assert (found["drift"]["first"] > FIRST) == drifts
    assert (verdict(found) == "different losses") != drifts


@pytest.mark.usefixtures("forked_scripts")
def test_compiled_scripts_draw_the_same_dropout_both_ways(written: Callable[[str], Path]) -> None:
    compiled = "loss = torch.compile(torch.nn.functional.dropout, dynamic=False)(out).square().sum()"
    found = measured(Example("gcn.py"), written(compiled), Effort(rounds=1, limit_s=200))
    assert found["deviation"]["first"] <= FIRST


def test_at_least_forty_scripts_are_listed_once_each() -> None:
    names = [example.name for example in EXAMPLES]
    assert len(set(names)) == len(names) >= 40


def test_a_checkout_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["examples", "--source", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert f"which has examples/gcn.py; {tmp_path} has not" in capsys.readouterr().err


def test_an_unknown_script_is_named() -> None:
    with pytest.raises(SystemExit, match=r"unknown nothing\.py; there are agnn\.py, "):
        program.chosen("gcn.py,nothing.py")
    assert [example.name for example in program.chosen("gcn.py, gat.py")] == ["gcn.py", "gat.py"]
