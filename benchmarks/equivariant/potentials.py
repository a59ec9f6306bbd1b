"""Interatomic potentials in published sizes, with random weights, on drawn atoms.

A package is imported when one of its models is made, because none is needed for the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

import onehop

ELEMENTS = 10
# Angstrom. Neighbours are counted within RADIUS.
RADIUS, JITTER = 5.0, 0.2


@dataclass(frozen=True, slots=True)
class Atoms:
    """Atoms in a cube that repeats in all directions.

    Attributes:
        pos: [N, 3], Angstrom.
        cell: [3, 3], its vectors as rows.
        elements: [N], numbers from 0.
        edge_index: [2, E]: from each neighbour to the atom.
        shifts: [E, 3]: how often each vector of the cell is added to the neighbour's position.
    """

    pos: Tensor
    cell: Tensor
    elements: Tensor
    edge_index: Tensor
    shifts: Tensor

    @classmethod
    def drawn(cls, side: int, neighbours: float, dtype: torch.dtype) -> "Atoms":
        """Return ``side ** 3`` atoms near the points of a grid, with about this many neighbours each."""
        steps = torch.arange(side, dtype=dtype)
        grid = torch.cartesian_prod(steps, steps, steps)
        # A sphere of RADIUS has the volume of this many cubes of the grid.
        spacing = RADIUS * (4.19 / (neighbours + 1)) ** (1 / 3)
        pos = spacing * (grid + JITTER * torch.rand_like(grid))
        cell = spacing * side * torch.eye(3, dtype=dtype)
        graph = onehop.Graph.from_points(pos, radius=RADIUS, cell=cell, pbc=True)
        elements = torch.randint(ELEMENTS, (side**3,))
        return cls(pos, cell, elements, graph.edge_index(), graph.shifts.to(dtype))


@dataclass(frozen=True, slots=True)
class Potential:
    """A model, and how it is called.

    Attributes:
        module: The model.
        evaluate: Returns energy [1] and forces [N, 3]. Its arguments are the model, the atoms, and whether
            parameters are trained on both.
    """

    module: Module
    evaluate: Callable[[Module, Atoms, bool], tuple[Tensor, Tensor]]


def mace(irreps: str, neighbours: float, degree: int = 3) -> Potential:
    """Return a model of MACE whose features have these irreps, and harmonics up to this degree."""
    import numpy as np
    from mace.modules import RealAgnosticResidualInteractionBlock, ScaleShiftMACE, gate_dict
    from mace.modules.models import o3  # MACE tells torch how to load the tables of this old e3nn

    block = RealAgnosticResidualInteractionBlock
    model = ScaleShiftMACE(
        atomic_inter_scale=1.0,
        atomic_inter_shift=0.0,
        r_max=RADIUS,
        num_bessel=10,
        num_polynomial_cutoff=5,
        max_ell=degree,
        interaction_cls=block,
        interaction_cls_first=block,
        num_interactions=2,
        num_elements=ELEMENTS,
        hidden_irreps=o3.Irreps(irreps),
        MLP_irreps=o3.Irreps("16x0e"),
        atomic_energies=np.zeros(ELEMENTS),
        avg_num_neighbors=neighbours,
        atomic_numbers=list(range(1, ELEMENTS + 1)),
        correlation=3,
        gate=gate_dict["silu"],
    )
    return Potential(model, _of_mace)


def _of_mace(model: Module, atoms: Atoms, training: bool) -> tuple[Tensor, Tensor]:
    count, device = atoms.pos.size(0), atoms.pos.device
    data = {
        "positions": atoms.pos,
        "node_attrs": torch.nn.functional.one_hot(atoms.elements, ELEMENTS).to(atoms.pos.dtype),
        "edge_index": atoms.edge_index,
        # MACE adds shifts to the atom's position.
        "shifts": -atoms.shifts @ atoms.cell,
        "unit_shifts": -atoms.shifts,
        "cell": atoms.cell,
        "batch": torch.zeros(count, dtype=torch.int64, device=device),
        "ptr": torch.tensor([0, count], device=device),
        "head": torch.zeros(1, dtype=torch.int64, device=device),
    }
    out = model(data, training=training)
    return out["energy"], out["forces"]


def nequip(preset: str, neighbours: float) -> Potential:
    """Return a model of NequIP with the sizes of one of its presets."""
    from nequip.model import PresetNequIPGNNModel
    from nequip.utils.global_state import set_global_state

    set_global_state()
    model = PresetNequIPGNNModel(
        preset,
        seed=0,
        model_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        r_max=RADIUS,
        type_names=[f"E{each}" for each in range(ELEMENTS)],
        avg_num_neighbors=neighbours,
        per_type_energy_scales=1.0,
        per_type_energy_shifts=0.0,
    )
    return Potential(model, _of_nequip)


def _of_nequip(model: Module, atoms: Atoms, training: bool) -> tuple[Tensor, Tensor]:
    data = {
        "pos": atoms.pos,
        "atom_types": atoms.elements,
        # NequIP names the atom first, then the neighbour.
        "edge_index": atoms.edge_index.flip(0),
        "edge_cell_shift": atoms.shifts,
        "cell": atoms.cell.unsqueeze(0),
    }
    out = model.train(training)(data)
    return out["total_energy"], out["forces"]


def schnet(neighbours: float) -> Potential:
    """Return PyG's SchNet in the size of its published models, on edges that are given."""
    from torch_geometric.nn import SchNet

    model = SchNet(
        hidden_channels=128, num_filters=128, num_interactions=6, num_gaussians=50, cutoff=RADIUS,
        interaction_graph=Given(),
    )  # fmt: skip
    return Potential(model, _of_schnet)


class Given(Module):
    """The edges of a periodic structure and their lengths, in the form that SchNet reads."""

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges of the atoms whose positions were set, and the lengths of the edges."""
        source, target = self.atoms.edge_index
        return self.atoms.edge_index, (pos[source] + self.atoms.shifts @ self.atoms.cell - pos[target]).norm(
            dim=1
        )


def _of_schnet(model: Module, atoms: Atoms, training: bool) -> tuple[Tensor, Tensor]:
    model.interaction_graph.atoms = atoms
    return _with_forces(lambda pos: model(atoms.elements + 1, pos).sum(), atoms, training)


class PaiNN(Module):
    """Scalars and vectors, K. Schuett et al., ICML 2021, in plain torch as its authors write it."""

    def __init__(self, width: int = 128, layers: int = 3, waves: int = 20) -> None:
        super().__init__()
        self.width, self.waves = width, waves
        self.start = torch.nn.Embedding(ELEMENTS, width)
        self.messages = torch.nn.ModuleList(_mlp(width, 3 * width) for _ in range(layers))
        self.filters = torch.nn.ModuleList(torch.nn.Linear(waves, 3 * width) for _ in range(layers))
        self.mixes = torch.nn.ModuleList(torch.nn.Linear(width, 2 * width, bias=False) for _ in range(layers))
        self.updates = torch.nn.ModuleList(_mlp(2 * width, 3 * width) for _ in range(layers))
        self.energy = _mlp(width, 1)

    def forward(self, atoms: Atoms, pos: Tensor) -> Tensor:
        """Return the energy, []."""
        source, target = atoms.edge_index
        vectors = pos[source] + atoms.shifts @ atoms.cell - pos[target]
        lengths = vectors.norm(dim=1, keepdim=True)
        directions = (vectors / lengths).unsqueeze(2)
        counts = torch.arange(1, self.waves + 1, dtype=pos.dtype) * torch.pi / RADIUS
        waves, end = (counts * lengths).sin() / lengths, 0.5 * (torch.pi * lengths / RADIUS).cos() + 0.5
        scalars = self.start(atoms.elements)
        turning = scalars.new_zeros(len(scalars), 3, self.width)
        for message, filtered, mix, update in zip(
            self.messages, self.filters, self.mixes, self.updates, strict=True
        ):
            parts = message(scalars)[source] * filtered(waves) * end
            first, second, third = parts.chunk(3, 1)
            moved = second.unsqueeze(1) * directions + third.unsqueeze(1) * turning[source]
            scalars = scalars.index_add(0, target, first)
            turning = turning.index_add(0, target, moved)
            left, right = mix(turning).chunk(2, 2)
            sizes = (right.square().sum(1) + 1e-8).sqrt()
            first, second, third = update(torch.cat([scalars, sizes], 1)).chunk(3, 1)
            scalars = scalars + first + second * (left * right).sum(1)
            turning = turning + third.unsqueeze(1) * left
        total: Tensor = self.energy(scalars).sum()
        return total


def _mlp(into: int, out: int) -> Module:
    return torch.nn.Sequential(torch.nn.Linear(into, into), torch.nn.SiLU(), torch.nn.Linear(into, out))


def _of_painn(model: Module, atoms: Atoms, training: bool) -> tuple[Tensor, Tensor]:
    return _with_forces(lambda pos: model(atoms, pos), atoms, training)


def _with_forces(
    energy_of: Callable[[Tensor], Tensor], atoms: Atoms, training: bool
) -> tuple[Tensor, Tensor]:
    pos = atoms.pos.detach().requires_grad_()
    energy = energy_of(pos)
    (slope,) = torch.autograd.grad(energy, pos, create_graph=training)
    return energy.reshape(1), -slope


POTENTIALS: Mapping[str, Callable[[float], Potential]] = {
    # "128x0e" and "128x0e+128x1o" are the sizes of MACE-MP-0, small and medium (I. Batatia et al., 2023).
    "mace-small": partial(mace, "128x0e"),
    "mace-medium": partial(mace, "128x0e+128x1o"),
    # The presets of NequIP 0.19.
    "nequip-small": partial(nequip, "S"),
    "nequip-medium": partial(nequip, "M"),
    "schnet": schnet,
    "painn": lambda neighbours: Potential(PaiNN(), _of_painn),
}
"""By name: makes the potential, for atoms with this mean number of neighbours."""


def results(potential: Potential, atoms: Atoms, training: bool) -> list[Tensor]:
    """Return energy and forces; in training the gradients of a loss of both, of all parameters."""
    energy, forces = potential.evaluate(potential.module, atoms, training)
    if not training:
        return [energy.detach(), forces.detach()]
    loss: Any = energy.square().sum() + 100 * forces.square().mean()
    parameters = [each for each in potential.module.parameters() if each.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [energy.detach(), forces.detach(), *(each for each in gradients if each is not None)]
