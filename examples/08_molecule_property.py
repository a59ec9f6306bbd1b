"""A property of molecules by principal neighbourhood aggregation, PyG's example, without and with onehop.

    python examples/08_molecule_property.py [--zinc FOLDER] [--molecules 400] [--epochs 3]

A port of PyG's ``examples/pna.py``: four ``PNAConv`` of width 75 with bonds as edge features, five towers,
four aggregators and three scalers, batch normalisation, a sum over each molecule. It trains on random trees
with rings, whose property depends on atoms, bonds and rings; ``--zinc`` trains on ZINC, downloaded by PyG.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.datasets import ZINC
from torch_geometric.loader import DataLoader
from torch_geometric.nn import BatchNorm, PNAConv, global_add_pool
from torch_geometric.utils import degree

import onehop

ATOMS, BONDS, WIDTH, BOND_WIDTH, LAYERS, BATCH = 21, 4, 75, 50, 4, 64


class Pna(torch.nn.Module):
    """PyG's model."""

    def __init__(self, degrees: torch.Tensor) -> None:
        super().__init__()
        self.atoms = torch.nn.Embedding(ATOMS, WIDTH)
        self.bonds = torch.nn.Embedding(BONDS, BOND_WIDTH)
        self.layers = torch.nn.ModuleList(
            PNAConv(
                WIDTH,
                WIDTH,
                aggregators=["mean", "min", "max", "std"],
                scalers=["identity", "amplification", "attenuation"],
                deg=degrees,
                edge_dim=BOND_WIDTH,
                towers=5,
                divide_input=False,
            )
            for _ in range(LAYERS)
        )
        self.norms = torch.nn.ModuleList(BatchNorm(WIDTH) for _ in range(LAYERS))
        linear = torch.nn.Linear
        self.head = torch.nn.Sequential(
            linear(WIDTH, 50), torch.nn.ReLU(), linear(50, 25), torch.nn.ReLU(), linear(25, 1)
        )

    def forward(self, batch: Data) -> torch.Tensor:
        """The property of each molecule."""
        x, bonds = self.atoms(batch.x.squeeze(-1)), self.bonds(batch.edge_attr)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x, batch.edge_index, bonds)).relu()
        return self.head(global_add_pool(x, batch.batch)).squeeze(-1)


def molecule(generator: torch.Generator) -> Data:
    """A tree of 10 to 29 atoms with a few rings, and a property that its atoms, bonds and rings make."""
    nodes = int(torch.randint(10, 30, (1,), generator=generator))
    child = torch.arange(1, nodes)
    parent = (child - torch.randint(1, 3, (nodes - 1,), generator=generator)).clamp(min=0)
    ring = torch.arange(0, nodes - 6, int(torch.randint(4, 9, (1,), generator=generator)))
    pairs = torch.stack([torch.cat([parent, ring]), torch.cat([child, ring + 5])])
    bonds = torch.randint(1, BONDS, (pairs.size(1),), generator=generator)
    atoms = torch.randint(ATOMS, (nodes, 1), generator=generator)
    y = atoms.float().mean() / 10 + bonds.float().mean() + 0.3 * ring.numel()
    return Data(
        x=atoms,
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        edge_attr=torch.cat([bonds, bonds]),
        y=y.view(1),
    )


def train(molecules: list[Data], epochs: int) -> tuple[list[float], float]:
    """The mean absolute error of each epoch, and the seconds that the last one took."""
    torch.manual_seed(0)
    counts = [degree(each.edge_index[1], each.num_nodes, dtype=torch.long).bincount() for each in molecules]
    most = max(count.numel() for count in counts)
    model = Pna(torch.stack([F.pad(count, (0, most - count.numel())) for count in counts]).sum(dim=0))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.001)
    errors = []
    for epoch in range(1, epochs + 1):
        begin, total = time.perf_counter(), 0.0
        for batch in DataLoader(molecules, BATCH, shuffle=True):
            optimiser.zero_grad()
            loss = (model(batch) - batch.y).abs().mean()
            loss.backward()
            optimiser.step()
            total += loss.item() * batch.num_graphs
        seconds = time.perf_counter() - begin
        errors.append(total / len(molecules))
        print(f"  epoch {epoch}: mean absolute error {errors[-1]:.4f}")
    return errors, seconds


def main() -> None:
    """Trains both ways and compares."""
    parser = argparse.ArgumentParser(description="A property of molecules by PNA.")
    parser.add_argument("--zinc", metavar="FOLDER", help="train on ZINC, kept in this folder")
    parser.add_argument("--molecules", type=int, default=400, help="random ones in its place (400)")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    if options.zinc:
        molecules = list(ZINC(options.zinc, subset=True))
    else:
        generator = torch.Generator().manual_seed(0)
        molecules = [molecule(generator) for _ in range(options.molecules)]
    print("PyG alone")
    alone, seconds_alone = train(molecules, options.epochs)
    print("with onehop.patch()")
    with onehop.patch():
        patched, seconds_patched = train(molecules, options.epochs)
    same = max(abs(a - b) for a, b in zip(alone, patched, strict=True)) < 1e-2
    print(f"an epoch: {1e3 * seconds_alone:.0f} ms alone, {1e3 * seconds_patched:.0f} ms patched")
    print(f"same errors: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
