"""A GATv2 model on a graph of 20 million edges: time of an epoch, and the whole process's peak memory.

    python benchmarks/memory/bench_large_attention.py [--nodes 500000] [--edges 20000000] [--hidden 256]
                                                      [--epochs 3] [--json FILE]

PyG keeps three tensors of edges times width for each layer's backward pass: 3 x 256 x 4 bytes for each of 20
million edges are 61 GB. It is therefore not run here.
"""

import time

import torch
import torch.nn.functional as F

import onehop
from onehop.bench import command
from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.plain_models import GATv2
from onehop.bench.stamp import machine_line
from onehop.datasets import chung_lu

FEATURES, CLASSES = 128, 40


def main() -> None:
    """Reads the options, trains, prints."""
    parser = command.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    options = command.read(parser)
    print(machine_line())
    edge_index = chung_lu(options.nodes, options.edges)
    torch.manual_seed(0)
    x = torch.randn(options.nodes, FEATURES)
    y = torch.randint(CLASSES, (options.nodes,))
    model = GATv2(FEATURES, options.hidden, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loaded = resident_bytes()
    seconds, losses = [], []
    with onehop.patch():
        for number in range(options.epochs):
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x, edge_index), y)
            loss.backward()
            optimizer.step()
            seconds.append(time.perf_counter() - begin)
            losses.append(float(loss.detach()))
            print(f"epoch {number}: {seconds[-1]:.1f} s, loss {losses[-1]:.4f}", flush=True)
    peak = peak_bytes()
    print(
        f"{edge_index.size(1):,} edges, hidden {options.hidden}: peak {peak / 2**30:.2f} GiB, of which "
        f"{loaded / 2**30:.2f} GiB were there before training"
    )
    result = {"edges": edge_index.size(1), "seconds": seconds, "losses": losses, "peak_bytes": peak}
    command.write(options, "bench large attention", {**result, "loaded_bytes": loaded})


if __name__ == "__main__":
    main()
