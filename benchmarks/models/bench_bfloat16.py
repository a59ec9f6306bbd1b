"""Patched models in bfloat16 autocast beside patched float32: epochs in turns, and accuracy after training.

    python benchmarks/models/bench_bfloat16.py [--models gcn,sage,gat] [--graph twin:arxiv] [--hidden 256]
                                               [--rounds 5] [--epochs 30] [--seeds 3] [--threads N]
                                               [--json FILE]

The models are those of OGB's leaderboard for arxiv: three layers with batch normalisation, ReLU and dropout
0.5 between them. A turn is one epoch: forward, backward and a step of Adam; both precisions take turns, each
with a model and an optimiser of its own. Parameters are float32 in both. ``--epochs 0`` leaves accuracy out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onehop
from onehop import datasets
from onehop.bench import command
from onehop.bench.lists import names
from onehop.bench.stamp import machine_line
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, in_turns, measure_once

LAYERS = 3
HEADS = 4
DROPOUT = 0.5
LEARNING_RATE = 0.01
WARM = 3
PRECISIONS = ("float32", "bfloat16")


def convs() -> dict[str, Callable[[int, int, bool], Any]]:
    """Makers of layers by name: widths of input and output, and whether it is the last one."""
    from torch_geometric import nn as gnn

    def gat(inputs: int, outputs: int, last: bool) -> Any:
        if last:
            return gnn.GATConv(inputs, outputs, heads=1)
        return gnn.GATConv(inputs, outputs // HEADS, heads=HEADS)

    return {
        "gcn": lambda inputs, outputs, last: gnn.GCNConv(inputs, outputs),
        "sage": lambda inputs, outputs, last: gnn.SAGEConv(inputs, outputs),
        "gat": gat,
    }


class Model(nn.Module):
    """Three layers of one kind."""

    def __init__(self, make: Callable[[int, int, bool], nn.Module], widths: tuple[int, int, int]) -> None:
        super().__init__()
        inputs, hidden, outputs = widths
        ends = [inputs, *[hidden] * (LAYERS - 1), outputs]
        self.convs = nn.ModuleList(make(ends[i], ends[i + 1], i == LAYERS - 1) for i in range(LAYERS))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(LAYERS - 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, classes]."""
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = F.dropout(norm(conv(x, edge_index)).relu(), DROPOUT, self.training)
        out: Tensor = self.convs[-1](x, edge_index)
        return out


@dataclass
class Run:
    """One model on its way, in one precision."""

    task: LearningTask
    model: Model
    optimizer: torch.optim.Optimizer
    precision: str

    @classmethod
    def of(cls, task: LearningTask, name: str, hidden: int, precision: str, seed: int = 0) -> "Run":
        """A model with the parameters of a seed."""
        torch.manual_seed(seed)
        model = Model(convs()[name], (task.x.size(1), hidden, task.num_classes))
        return cls(task, model, torch.optim.Adam(model.parameters(), lr=LEARNING_RATE), precision)

    def scores(self) -> Tensor:
        """[N, classes], float32."""
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.precision == "bfloat16"):
            out: Tensor = self.model(self.task.x, self.task.edge_index)
        return out.float()

    def epoch(self) -> float:
        """One step; the loss before it."""
        self.model.train()
        self.optimizer.zero_grad()
        mask = self.task.train_mask
        loss = F.cross_entropy(self.scores()[mask], self.task.y[mask])
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def accuracy(self) -> float:
        """The share of test nodes that are classified rightly."""
        self.model.eval()
        mask = self.task.test_mask
        right = self.scores()[mask].argmax(-1) == self.task.y[mask]
        return float(right.float().mean())


def measured(task: LearningTask, name: str, options: Any) -> dict[str, Any]:
    """The epochs of one model in both precisions, in turns."""
    runs = {precision: Run.of(task, name, options.hidden, precision) for precision in PRECISIONS}
    for run in runs.values():
        measure_once(run.epoch, WARM)

    turns = {precision: partial(measure_once, run.epoch) for precision, run in runs.items()}
    times = in_turns(turns, options.rounds)
    ratio = Ratio.of(times["float32"], times["bfloat16"])
    return {
        **{f"{precision}_ms": times[precision].median_s * 1e3 for precision in PRECISIONS},
        "ratio": ratio.median,
        "quartiles": [ratio.lower_quartile, ratio.upper_quartile],
    }


def trained(task: LearningTask, name: str, options: Any) -> dict[str, list[float]]:
    """Test accuracies by precision, one a seed."""
    found: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for seed in range(options.seeds):
        for precision in PRECISIONS:
            run = Run.of(task, name, options.hidden, precision, seed)
            for _ in range(options.epochs):
                run.epoch()
            found[precision].append(run.accuracy())
    return found


def main() -> None:
    """Prints a line a model, and a line of accuracies."""
    parser = command.parser(__doc__, rounds=5, threads=True)
    parser.add_argument("--models", default="gcn,sage,gat", help="names, separated by commas")
    parser.add_argument("--graph", default="twin:arxiv", help="a data set with features and labels")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=30, help="of training before accuracy is measured")
    parser.add_argument("--seeds", type=int, default=3)
    options = command.read(parser)
    chosen = names(options.models)
    if unknown := [name for name in chosen if name not in convs()]:
        raise SystemExit(f"--models: unknown {', '.join(unknown)}; there are {', '.join(convs())}.")
    print(machine_line())
    task = LearningTask.of(datasets.load(options.graph))
    cases = []
    with onehop.patch():
        for name in chosen:
            case: dict[str, Any] = {"model": name, **measured(task, name, options)}
            print(
                f"{name:6} float32 {case['float32_ms']:8.1f} ms  bfloat16 {case['bfloat16_ms']:8.1f} ms  "
                f"{case['ratio']:.2f} ({case['quartiles'][0]:.2f} to {case['quartiles'][1]:.2f})",
                flush=True,
            )
            if options.epochs:
                case["accuracy"] = trained(task, name, options)
                line = "  ".join(
                    f"{precision} {mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"
                    for precision, values in case["accuracy"].items()
                )
                print(f"{name:6} accuracy after {options.epochs} epochs: {line}", flush=True)
            cases.append(case)
    command.write(options, "benchmarks/models/bench_bfloat16.py", {"cases": cases})


if __name__ == "__main__":
    main()
