"""Sampled GraphSAGE on several processes: plain DistributedDataParallel, seeds and features divided.

    torchrun --nproc-per-node 2 examples/09_sampled_training.py [--folder FOLDER] [--epochs 5]

The edges are in a file that all processes of a host map, so that they are in memory once. The features are
divided: rows of others are fetched while a step runs, and those needed most are kept.
"""

import argparse
import datetime
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torch_geometric.nn import GraphSAGE

import onehop
from onehop import distributed
from onehop.datasets import planted

CLASSES, FEATURES, WIDTH = 8, 32, 64
BATCH, FAN_OUT, KEPT_ROWS = 512, [10, 10], 1_000
LIMIT = datetime.timedelta(minutes=2)


def store(folder: Path, parts: int) -> None:
    """Makes a graph with communities; writes its edges as they are, and its features in parts."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(CLASSES), 2_500))
    edge_index = planted.edges(rng, labels, num_pairs=100_000, exponent=0.5, same_class=0.7)
    x = torch.from_numpy(planted.vectors(rng, labels, FEATURES, signal=1.0))
    onehop.Graph.from_edge_index(edge_index, len(labels)).save(folder / "edges")
    torch.save(torch.from_numpy(labels), folder / "labels.pt")
    distributed.save(folder / "parts", edge_index, len(labels), parts=parts, tensors={"x": x})


def main() -> None:
    """Trains, then tests."""
    parser = argparse.ArgumentParser(description="Sampled training on several processes.")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "onehop-sampled")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    dist.init_process_group("gloo", timeout=LIMIT)
    rank, parts = dist.get_rank(), dist.get_world_size()
    folder = options.folder / str(parts)
    if rank == 0 and not folder.exists():
        folder.mkdir(parents=True)
        store(folder, parts)
    dist.barrier()
    part = distributed.DistributedGraph.open(folder / "parts", group=dist.new_group(timeout=LIMIT))
    x = distributed.RemoteRows(part, part.load("x"), kept_rows=KEPT_ROWS)
    y = torch.load(folder / "labels.pt", weights_only=True)
    sampler = onehop.NeighborSampler(onehop.Graph.open(folder / "edges"), FAN_OUT, seed=0)
    rows = {"x": x, "y": y}
    train, test = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).split([15_000, 5_000])
    share = DistributedSampler(train, seed=0)
    batches = onehop.loader(sampler, train, features=rows, batch_size=BATCH // parts, sampler=share)
    model = DistributedDataParallel(GraphSAGE(FEATURES, WIDTH, 2, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with onehop.patch(), distributed.alone(), distributed.naming_lost_ranks():
        for epoch in range(1, options.epochs + 1):
            share.set_epoch(epoch)
            for batch in batches:
                optimizer.zero_grad()
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size])
                loss.backward()
                optimizer.step()
            if rank == 0:
                print(f"epoch {epoch}: loss {loss.item():.4f}, {x.traffic.received_bytes:,} bytes received")
        model.eval()
        counts = torch.zeros(2)
        unseen = onehop.loader(
            sampler, test, features=rows, sampler=DistributedSampler(test), batch_size=BATCH
        )
        for batch in unseen:
            guess = model.module(batch.x, batch.edge_index)[: batch.batch_size].argmax(dim=1)
            counts += torch.tensor([(guess == batch.y[: batch.batch_size]).sum(), batch.batch_size])
        dist.all_reduce(counts)
    if rank == 0:
        print(f"test accuracy {100 * counts[0] / counts[1]:.1f} % on {parts} processes")
    dist.barrier()  # by now torch's threads have let go of the sums: they need Python's lock for it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
