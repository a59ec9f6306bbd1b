"""Accuracy of a trained GCN on Cora when its sums run on a near-bank machine in integers.

    ONEHOP_DATA=... python benchmarks/machines/bench_pim_quantisation.py [--seeds 5]
        [--json benchmarks/results/machines/pim_quantisation.json]

The model is trained in float32 on the CPU, then asked on the machine with each dtype; the second figure
trains it on the machine in that dtype as well, gradients included.
"""

import os
import statistics
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.nn import GCNConv

import onehop
from onehop import datasets
from onehop.bench import command
from onehop.datasets import Dataset
from onehop.machines.pim import Machine, PimPlan

DTYPES = ("float32", "int32", "int16", "int8")


class GCN(torch.nn.Module):
    """Kipf and Welling, 2017."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, 16), GCNConv(16, classes)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """[N, features] -> [N, classes]."""
        x = self.first(dropout(x, 0.5, self.training), edges).relu()
        out: torch.Tensor = self.second(dropout(x, 0.5, self.training), edges)
        return out


def on(dtype: str, scale: str) -> AbstractContextManager[object]:
    """The patch with a machine of that dtype."""
    plan = PimPlan(sp=1, ds=32, dtype=None if dtype == "float32" else dtype, scale=scale)
    return onehop.patch(machine=Machine(plan=plan))


def train(data: Dataset, seed: int, epochs: int) -> GCN:
    """A model after some epochs."""
    torch.manual_seed(seed)
    model = GCN(data.num_features, data.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4)
    for _ in range(epochs):
        optimiser.zero_grad()
        cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        optimiser.step()
    return model.eval()


def accuracy(model: GCN, data: Dataset) -> float:
    """On the test nodes."""
    with torch.inference_mode():
        right = model(data.x, data.edge_index).argmax(1) == data.y
    return float(right[data.test_mask].float().mean())


def main() -> None:
    """Prints and writes everything."""
    parser = command.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    options = command.read(parser)
    data = datasets.from_file(Path(os.environ["ONEHOP_DATA"]) / "cora.npz")
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(options.seeds):
        with onehop.patch():
            model = train(data, seed, options.epochs)
            found.setdefault("cpu float32", {}).setdefault("asked", []).append(accuracy(model, data))
        for dtype in DTYPES:
            for scale in ("tensor", "column") if dtype != "float32" else ("tensor",):
                with on(dtype, scale):
                    entry = found.setdefault(f"{dtype}, by {scale}" if dtype != "float32" else dtype, {})
                    entry.setdefault("asked", []).append(accuracy(model, data))
                    if seed == 0:
                        trained = train(data, seed, options.epochs)
                        entry.setdefault("trained", []).append(accuracy(trained, data))
    for name, entry in found.items():
        trained = f", trained there {100 * entry['trained'][0]:.1f} %" if "trained" in entry else ""
        spread = f"{100 * min(entry['asked']):.1f} to {100 * max(entry['asked']):.1f}"
        print(f"{name:18} {100 * statistics.mean(entry['asked']):.2f} % ({spread}){trained}")
    command.write(options, "benchmarks/machines/bench_pim_quantisation.py", {"accuracy": found})


if __name__ == "__main__":
    main()
