"""The benchmark of interatomic potentials at its smallest, and the potentials that need no other package."""

import json
from pathlib import Path

import pytest
import torch

import onehop
from benchmarks.equivariant.potentials import POTENTIALS, Atoms
from tests.integrations.equivariant.potential_checks import check_forces, check_same
from tests.processes import run_python

pytest.importorskip("torch_geometric")
FORMS = {"schnet": ["its message, compiled"] * 6, "painn": []}


@pytest.mark.parametrize("training", [False, True], ids=["forces", "training"])
@pytest.mark.parametrize("name", FORMS)
def test_energy_forces_and_gradients(name: str, training: bool) -> None:
    check_same(POTENTIALS[name], FORMS[name], training, tolerance=1e-4)


@pytest.mark.parametrize("name", FORMS)
def test_forces_are_differences_of_energies_and_turn(name: str) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        check_forces(POTENTIALS[name])
    finally:
        torch.set_default_dtype(torch.float32)


def test_atoms_have_about_as_many_neighbours_as_asked() -> None:
    torch.manual_seed(0)
    atoms = Atoms.drawn(5, 30.0, torch.float32)
    assert 27 < atoms.edge_index.size(1) / 125 < 33


def test_the_script(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    small = "--potentials schnet,mace-small --side 2 --neighbours 10 --rounds 1"
    done = run_python(["-m", "benchmarks.equivariant.bench_potentials", *small.split(), "--json", str(file)])
    assert done.returncode == 0, done.stderr
    assert "mace-small is left out: No module named 'mace'" in done.stdout
    document = json.loads(file.read_text())
    assert [row["pass"] for row in document["results"]] == ["forces", "training"]
    for row in document["results"]:
        assert set(row["seconds"]) == set(row["peak_bytes"]) == {"theirs", "onehop"}
        assert row["speedup"] > 0
        assert row["difference"] < 1e-3
    assert onehop.patched() == ()
