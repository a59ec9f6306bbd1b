"""Full-graph training of an unchanged PyG model on several processes, with checkpoints.

    torchrun --nproc-per-node 2 examples/04_distributed_training.py [--folder FOLDER] [--epochs 20]

Each process owns a part of the nodes. The graph is divided once and stored under the folder, the checkpoint
beside it: started again, with the same number of processes, training goes on from the last epoch that was
saved, as far as ``--epochs``.
"""

import argparse
import datetime
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

import onehop
from onehop import distributed
from onehop.datasets import planted

CLASSES, FEATURES, HIDDEN = 8, 32, 16


class GCN(torch.nn.Module):
    """Two layers of PyG and a normalisation, as on one process."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(FEATURES, HIDDEN)
        self.norm = torch.nn.BatchNorm1d(HIDDEN)
        self.second = GCNConv(HIDDEN, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Scores, [N, classes]."""
        x = F.relu(self.norm(self.first(x, edge_index)))
        return self.second(F.dropout(x, 0.2, training=self.training), edge_index)


def store_graph(folder: Path, parts: int) -> None:
    """Makes a graph with communities, divides it, and stores the parts with features and labels."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(CLASSES), 2_500))
    edge_index = planted.edges(rng, labels, num_pairs=100_000, exponent=0.0, same_class=0.7)
    y = torch.from_numpy(labels)
    x = F.one_hot(y % FEATURES, FEATURES) + torch.randn(len(y), FEATURES) * 2
    meta = distributed.save(folder, edge_index, len(y), parts=parts, tensors={"x": x, "y": y})
    print(f"{meta['num_nodes']} nodes in {parts} parts; an exchange sends {meta['cut_rows']} rows")


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(description="Distributed training of a GCN.")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "onehop-distributed")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=2))
    rank, parts = dist.get_rank(), dist.get_world_size()
    graph_folder, checkpoint = options.folder / f"graph-{parts}", options.folder / f"checkpoint-{parts}.pt"
    if rank == 0 and not graph_folder.exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        store_graph(graph_folder, parts)
    dist.barrier()
    graph = distributed.DistributedGraph.open(graph_folder)
    x, y = graph.load("x"), graph.load("y")
    # The same parameters everywhere, and random numbers of its own afterwards.
    with distributed.same_random(0):
        model = distributed.convert(GCN(), graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    start = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["epochs"]
        if rank == 0:
            print(f"resumed after epoch {start}")
    with onehop.patch():
        for epoch in range(start + 1, options.epochs + 1):
            graph.reset_traffic()
            optimizer.zero_grad()
            # This process's share of the mean over all nodes.
            out = model(x, graph.edge_index)
            loss = F.cross_entropy(out, y, reduction="sum") / graph.part.num_nodes
            loss.backward()
            distributed.add_gradients(model.parameters())
            optimizer.step()
            sums = torch.tensor(
                [loss.detach(), (out.argmax(1) == y).sum() / graph.part.num_nodes, graph.traffic.sent_bytes],
                dtype=torch.float64,
            )
            distributed.total(sums)
            if rank == 0:
                whole, accuracy, sent = sums.tolist()
                print(f"epoch {epoch}: loss {whole:.4f}, accuracy {accuracy:.3f}, {sent:.0f} bytes sent")
                # Written beside and renamed, so that a checkpoint is always whole.
                beside = checkpoint.with_suffix(".tmp")
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch}
                torch.save(state, beside)
                beside.rename(checkpoint)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
