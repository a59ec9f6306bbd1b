"""Run by test_loader: trains with features of three times the memory that this process may still take.

limited_training.py map|memory FOLDER
"""

import resource
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv

import onehop

NODES, WIDTH, CLASSES = 100_000, 256, 4
ALLOWED = NODES * WIDTH * 4 // 3


def data_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


way, folder = sys.argv[1], Path(sys.argv[2])
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
y = torch.randint(0, CLASSES, (NODES,), generator=generator)
x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (NODES, WIDTH))
for begin in range(0, NODES, 10_000):
    x[begin : begin + 10_000] = F.one_hot(y[begin : begin + 10_000], WIDTH).numpy()
del x
edge_index = torch.randint(0, NODES, (2, 300_000), generator=generator)
sampler = onehop.NeighborSampler(onehop.Graph.from_edge_index(edge_index, NODES), [5, 5], seed=0)
torch.manual_seed(0)
first, second = SAGEConv(WIDTH, 16), SAGEConv(16, CLASSES)
optimiser = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02)


def losses(features: object, batches: int) -> list[float]:
    loader = onehop.loader(
        sampler, torch.arange(512 * batches), features={"x": features, "y": y}, batch_size=512, threads=2
    )
    found = []
    for batch in loader:
        optimiser.zero_grad()
        out = second(first(batch.x, batch.edge_index).relu(), batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimiser.step()
        found.append(float(loss))
    return found


onehop.patch()
# What the first steps load and keep is not what is looked at.
losses(folder / "x.npy", 2)
# Private memory that can be written to: a map that is only read is not counted, and may be dropped at will.
resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + ALLOWED,) * 2)
found = losses(folder / "x.npy" if way == "map" else torch.from_numpy(np.load(folder / "x.npy")), 40)
assert found[-1] < 0.5 * found[0], found
sys.stdout.write("trained\n")
