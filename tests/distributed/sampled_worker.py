"""Run by test_sampled: GraphSAGE on sampled batches, its seeds and features divided over the processes.

sampled_worker.py GRAPH_FOLDER FAN_OUT EPOCHS [KILLED_RANK]
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torch_geometric.nn import SAGEConv

import onehop
from onehop import distributed
from tests.distributed.worker import join, leave, two

BATCH, KEPT, WIDTH, CLASSES = 120, 25, 8, 4


folder, fan_out, epochs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
killed = int(sys.argv[4]) if len(sys.argv) > 4 else None
rank, parts = join()
whole = onehop.Graph.open(folder / "whole")
part = distributed.DistributedGraph.open(folder / f"parts-{parts}", group=dist.new_group())
y = torch.load(folder / "y.pt")
x = distributed.RemoteRows(part, part.load("x"), kept_rows=KEPT)
train, test = (torch.arange(len(y)) % 4 != 0).nonzero().view(-1), torch.arange(0, len(y), 4)
shares = DistributedSampler(train, seed=3, drop_last=True)
loader = onehop.loader(
    onehop.NeighborSampler(whole, [fan_out, fan_out], seed=1), train, features={"x": x, "y": y},
    batch_size=BATCH // parts, sampler=shares, drop_last=True,
)  # fmt: skip
torch.manual_seed(0)
model = DistributedDataParallel(two(SAGEConv(WIDTH, 16), SAGEConv(16, CLASSES)))
optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
losses, needed, hits = [], 0, 0
rows_here = set(part.owned_nodes.tolist())
kept = set(x.kept_nodes.tolist())
with onehop.patch(), distributed.alone(), distributed.naming_lost_ranks():
    for epoch in range(epochs):
        shares.set_epoch(epoch)
        for number, batch in enumerate(loader):
            if killed == rank and (epoch, number) == (1, 0):
                os.kill(os.getpid(), signal.SIGKILL)
            optimiser.zero_grad()
            size = batch.batch_size
            loss = F.cross_entropy(model(batch.x, batch.edge_index)[:size], batch.y[:size])
            loss.backward()
            optimiser.step()
            mean = loss.detach() / parts
            dist.all_reduce(mean)
            losses.append(float(mean))
            # What the batch needs, counted without the code under test.
            missing = set(batch.n_id.tolist()) - rows_here
            needed += len(missing - kept)
            hits += len(missing & kept)
    model.eval()
    right = 0
    every = onehop.NeighborSampler(whole, [-1, -1])
    for batch in onehop.loader(every, test, features={"x": x, "y": y}, batch_size=100):
        size = batch.batch_size
        guess = model.module(batch.x, batch.edge_index)[:size].argmax(1)
        right += int((guess == batch.y[:size]).sum())
        missing = set(batch.n_id.tolist()) - rows_here
        needed += len(missing - kept)
        hits += len(missing & kept)
print(json.dumps({
    "losses": losses, "accuracy": right / len(test), "kept": len(kept), "halo": part.num_halo,
    "received": x.traffic.received_bytes, "sent": x.traffic.sent_bytes, "hits": x.hits,
    "needed": needed * WIDTH * 4, "expected_hits": hits,
}))  # fmt: skip
leave()
