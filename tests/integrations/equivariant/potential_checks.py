"""What is true of every potential under the patch; MACE and NequIP run in environments of their own."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

import onehop
from benchmarks.equivariant.potentials import Atoms, Potential, results
from onehop.integrations import reports

NEIGHBOURS = 12.0


def drawn(make: Callable[[float], Potential]) -> tuple[Potential, Atoms]:
    """A potential and eight atoms, in torch's default dtype."""
    torch.manual_seed(0)
    return make(NEIGHBOURS), Atoms.drawn(2, NEIGHBOURS, torch.get_default_dtype())


def check_same(
    make: Callable[[float], Potential], forms: list[str], training: bool, tolerance: float
) -> None:
    """Energy, forces and all gradients are the package's, and every block takes the fast path."""
    potential, atoms = drawn(make)
    expected = results(potential, atoms, training)
    with onehop.patch(), reports.recorded() as calls:
        found = results(potential, atoms, training)
    assert [(call.reason, call.form) for call in calls] == [(None, form) for form in forms]
    assert len(found) == len(expected) > (2 if training else 1)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * float(want.abs().max()))


def check_forces(make: Callable[[float], Potential]) -> None:
    """Forces are the negative differences of energies, and turn with the atoms; float64."""
    potential, atoms = drawn(make)
    with onehop.patch():
        energy, forces = results(potential, atoms, False)
        step = 1e-4
        for atom, axis in ((0, 0), (3, 1), (5, 2)):
            moved: list[Tensor] = []
            for sign in (1, -1):
                pos = atoms.pos.detach().clone()
                pos[atom, axis] += sign * step
                moved.append(results(potential, replace(atoms, pos=pos), False)[0])
            slope = float(moved[0] - moved[1]) / (2 * step)
            assert abs(slope + float(forces[atom, axis])) < 1e-5 * max(1.0, float(forces.abs().max()))
        turn = torch.linalg.qr(torch.randn(3, 3))[0]
        turned = replace(atoms, pos=atoms.pos.detach() @ turn.T + 1.5, cell=atoms.cell @ turn.T)
        same_energy, turned_forces = results(potential, turned, False)
    scale = float(forces.abs().max())
    torch.testing.assert_close(same_energy, energy, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(turned_forces, forces @ turn.T, rtol=0, atol=1e-8 * scale)
