"""The programs in examples/ run, and print what they promise."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.distributed.launch import environment_of
from tests.processes import run_anew, run_python, run_together
from tests.scripts import load

pytest.importorskip("torch_geometric")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOK = "05_first_look"
FIRST = "10_first_ten_minutes"


def run(name: str, *arguments: str) -> str:
    done = run_python([EXAMPLES / name, *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout


def together(processes: int, name: str, *arguments: str) -> list[str]:
    """Runs an example in several processes, and returns the lines of all."""
    environment = environment_of(processes)
    ranks = [environment | {"RANK": str(rank)} for rank in range(processes)]
    done = run_together([EXAMPLES / name, *arguments], ranks)
    assert [each.stderr for each in done if each.returncode] == []
    return [line for each in done for line in each.stdout.splitlines()]


def test_aggregate() -> None:
    output = run("01_aggregate.py")
    for reduce in ("sum", "mean", "max", "min"):
        assert reduce in output


def test_patch_a_pyg_model() -> None:
    assert "same losses: yes" in run("02_patch_a_pyg_model.py")


def test_tune_a_graph() -> None:
    # A forked process may not tune.
    output = run_anew(EXAMPLES / "03_tune_a_graph.py", check=True).stdout
    assert "width 64, forward" in output
    assert "same result: yes" in output


def test_distributed_training_and_resuming(tmp_path: Path) -> None:
    # Once as users start it.
    options = ("--folder", tmp_path, "--epochs", "3")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    done = run_anew(*torchrun, EXAMPLES / "04_distributed_training.py", *options)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()
    second = together(2, "04_distributed_training.py", "--folder", str(tmp_path), "--epochs", "5")
    assert first[0].startswith("20000 nodes in 2 parts")
    assert second[0] == "resumed after epoch 3"
    losses = [float(line.split()[3].rstrip(",")) for line in (*first[1:], *second[1:])]
    assert len(losses) == 5
    assert losses == sorted(losses, reverse=True)


def test_sampled_training_on_one_process_and_on_two(tmp_path: Path) -> None:
    accuracy = []
    for processes in (1, 2):
        lines = together(processes, "09_sampled_training.py", "--folder", str(tmp_path), "--epochs", "3")
        assert len(lines) == 4
        received = [int(line.split()[4].replace(",", "")) for line in lines[:3]]
        assert (received == [0, 0, 0]) is (processes == 1)
        accuracy += figures(lines[-1], "accuracy")
    assert min(accuracy) > 80
    assert abs(accuracy[0] - accuracy[1]) < 3


def test_molecular_dynamics() -> None:
    pytest.importorskip("ase")
    output = run("11_molecular_dynamics.py", "--side", "2", "--steps", "5", "--channels", "4")
    assert "32 atoms" in output
    assert "energy conserved: yes" in output


def outputs_of(name: str, folder: Path) -> list[Any]:
    """What a notebook says and shows when it runs in a folder."""
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # it is kept without
    # A kernel of its own: a failing cell raises, with its traceback.
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def test_first_look(tmp_path: Path) -> None:
    outputs = outputs_of(NOTEBOOK, tmp_path)
    told = "".join(output.get("text", "") for output in outputs)
    shown = [output.data for output in outputs if output.output_type == "execute_result"]
    assert "largest difference" in told
    assert "times as fast" in told
    assert "fast: mean of source" in shown[0]["text/html"]
    assert "LSTMAggregation" in shown[0]["text/html"]
    assert "default plan" in shown[1]["text/html"]
    # A busy machine may confirm no plan, and then there is nothing to draw.
    if "image/png" in shown[2]:
        assert (tmp_path / "first_look.png").read_bytes()[:4] == b"\x89PNG"
    else:
        assert "too busy" in shown[2]["text/plain"]


def figures(output: str, word: str) -> list[float]:
    """The numbers that follow a word."""
    return [float(found) for found in re.findall(rf"{word} (\d+\.\d+)", output)]


@pytest.mark.parametrize(
    ("name", "arguments", "word", "count", "told"),
    [
        ("06_ogb_arxiv.py", "--scale 0.005 --epochs 3", "loss", 2 * 3, "same losses: yes"),
        ("07_reddit_by_sampling.py", "--scale 0.02 --epochs 2", "loss", 2, ""),
        ("08_molecule_property.py", "--molecules 64 --epochs 3", "error", 2 * 3, "same errors: yes"),
    ],
)
def test_published_trainings(name: str, arguments: str, word: str, count: int, told: str) -> None:
    output = run(name, *arguments.split())
    found, epochs = figures(output, word), int(arguments.split()[-1])
    assert len(found) == count
    assert found[epochs - 1] < found[0]
    assert told in output


def test_first_ten_minutes_as_a_notebook_made_from_the_script(tmp_path: Path) -> None:
    load("notebook").main(check=True)
    outputs = outputs_of(FIRST, tmp_path)
    assert "same losses: yes" in "".join(output.get("text", "") for output in outputs)
    shown = [output.data for output in outputs if "data" in output]
    assert any("image/png" in each for each in shown)
    assert any("fast: sum of GAT, fused" in each.get("text/html", "") for each in shown)
    assert (tmp_path / "first_ten_minutes.png").read_bytes()[:4] == b"\x89PNG"


def test_train_under_the_patch() -> None:
    done = run_python(["-m", "onehop", "run", EXAMPLES / "train.py", "2"])
    assert done.returncode == 0, done.stderr
    losses = figures(done.stdout, "loss")
    assert losses[1] < losses[0]
    assert "fast: sum of GAT, fused" in done.stderr


def test_every_example_has_a_test() -> None:
    names = {
        "01_aggregate.py",
        "02_patch_a_pyg_model.py",
        "03_tune_a_graph.py",
        "04_distributed_training.py",
        "06_ogb_arxiv.py",
        "07_reddit_by_sampling.py",
        "08_molecule_property.py",
        "09_sampled_training.py",
        "11_molecular_dynamics.py",
        f"{FIRST}.py",
        "train.py",
    }
    assert {path.name for path in EXAMPLES.glob("*.py")} == names
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == {f"{NOTEBOOK}.ipynb", f"{FIRST}.ipynb"}
