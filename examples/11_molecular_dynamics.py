"""Molecular dynamics with an equivariant potential on onehop.tensor_product, as a calculator of ASE.

    python examples/11_molecular_dynamics.py [--side 3] [--steps 50] [--channels 16] [--layers 2]

The potential has the messages of NequIP, with scalars and vectors, and random weights: it shows how the parts
fit together and what a step costs, not how copper behaves. Forces are the gradient of the energy, so the
total energy stays constant. ASE is needed: pip install ase
"""

import argparse
import math
import resource
import time

import torch
from ase import units
from ase.build import bulk
from ase.calculators.calculator import Calculator, all_changes
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.md.verlet import VelocityVerlet
from torch import Tensor, nn

import onehop
from onehop.graph import NeighborList, PointGraph

RADIUS, SKIN = 4.0, 0.5  # Angstrom
BESSELS = 8


class Interaction(nn.Module):
    """Messages of scalars and vectors, with weights from the length of the edge."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        # Scalars come from scalars and from products of vectors, vectors from either times the other.
        steps = [(0, 0, 0), (1, 1, 1), (0, 1, 2), (1, 0, 3)]
        kinds = [f"{channels}x{irrep}" for irrep in ("0e", "1o", "0e", "0e", "1o", "1o")]
        self.paths = onehop.TensorPaths("+".join(kinds[:2]), "0e+1o", "+".join(kinds[2:]), steps)
        self.radial = nn.Sequential(nn.Linear(BESSELS, 32), nn.SiLU(), nn.Linear(32, self.paths.weight_numel))
        self.mix = nn.Linear(2 * channels, 2 * channels)
        self.turn = nn.Linear(2 * channels, channels, bias=False)

    def forward(self, graph: PointGraph, x: Tensor, harmonics: Tensor, bessels: Tensor) -> Tensor:
        """Return new features, [N, 4 * channels]: scalars, then the three components of each vector."""
        out = onehop.tensor_product(graph, x, harmonics, self.radial(bessels), self.paths)
        out = out / math.sqrt(max(graph.num_edges / max(graph.num_dst, 1), 1))
        scalars, vectors = out.split([2 * self.channels, 6 * self.channels], 1)
        scalars, gates = self.mix(scalars).chunk(2, 1)
        vectors = self.turn(vectors.view(-1, 2 * self.channels, 3).transpose(1, 2))
        vectors = (vectors * gates.sigmoid()[:, None]).transpose(1, 2)
        return x + torch.cat([nn.functional.silu(scalars), vectors.flatten(1)], 1)


class Potential(nn.Module):
    """The energy of atoms of one element."""

    def __init__(self, channels: int, layers: int) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(channels))
        self.layers = nn.ModuleList(Interaction(channels) for _ in range(layers))
        self.energy = nn.Linear(channels, 1)

    def forward(self, graph: PointGraph, pos: Tensor, cell: Tensor) -> Tensor:
        """Return the energy, []."""
        lengths = graph.lengths(pos, cell)[:, None]
        harmonics = torch.cat([torch.ones_like(lengths), 3**0.5 * graph.vectors(pos, cell) / lengths], 1)
        waves = torch.arange(1, BESSELS + 1, dtype=pos.dtype) * math.pi / RADIUS
        # Messages end smoothly at the radius, so that the forces are continuous.
        bessels = (waves * lengths).sin() / lengths * (1 - (lengths / RADIUS).square()) ** 3
        x = torch.cat([self.start, self.start.new_zeros(3 * len(self.start))]).expand(len(pos), -1)
        for layer in self.layers:
            x = layer(graph, x, harmonics, bessels)
        total: Tensor = self.energy(x[:, : len(self.start)]).sum()
        return total


class OnehopCalculator(Calculator):
    """ASE's interface to the potential."""

    implemented_properties = ("energy", "forces")

    def __init__(self, potential: Potential) -> None:
        super().__init__()
        self.potential, self.neighbors = potential, NeighborList(radius=RADIUS, skin=SKIN, pbc=True)

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes) -> None:  # type: ignore[no-untyped-def]
        """Computes energy and forces of the atoms."""
        super().calculate(atoms, properties, system_changes)
        pos, cell = torch.from_numpy(self.atoms.positions).clone(), torch.from_numpy(self.atoms.cell.array)
        graph = self.neighbors.update(pos, cell)
        energy = self.potential(graph, pos.requires_grad_(), cell)
        (slope,) = torch.autograd.grad(energy, pos)
        self.results = {"energy": float(energy), "forces": -slope.numpy()}


def main() -> None:
    """Runs the dynamics, and prints what a step costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("side", 3), ("steps", 50), ("channels", 16), ("layers", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)

    atoms = bulk("Cu", cubic=True).repeat(args.side)
    atoms.calc = OnehopCalculator(Potential(args.channels, args.layers))
    MaxwellBoltzmannDistribution(atoms, temperature_K=300)
    dynamics = VelocityVerlet(atoms, timestep=1.0 * units.fs)
    dynamics.run(1)
    before, moving = atoms.get_total_energy(), atoms.get_kinetic_energy()
    began = time.perf_counter()
    dynamics.run(args.steps)
    seconds = time.perf_counter() - began

    drift = abs(atoms.get_total_energy() - before)
    print(f"{len(atoms)} atoms, {args.steps} steps of 1 fs")
    print(f"{1e6 * seconds / args.steps / len(atoms):.1f} us an atom and step")
    print(f"{atoms.calc.neighbors.searches} searches for neighbours")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    print(f"total energy moved by {drift:.1e} eV of {moving:.1f} eV in motion")
    print(f"energy conserved: {'yes' if drift < 1e-3 * moving else 'no'}")


if __name__ == "__main__":
    main()
