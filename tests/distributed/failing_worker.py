"""Run by test_failures: one rank ends, stops or hangs amid a training step; nobody catches errors.

failing_worker.py HOW RANK WHERE TIMEOUT_S
"""

import datetime
import os
import signal
import sys

import torch
import torch.distributed as dist

from onehop import distributed
from onehop.distributed.sums import AllRows
from tests.distributed.cases import NODES, hostile, random

how, lost, where, timeout = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
torch.set_num_threads(1)
dist.init_process_group("gloo")
# The time limit is that of the group; the start may take longer.
group = dist.new_group(timeout=datetime.timedelta(seconds=timeout))
graph = distributed.DistributedGraph.from_edge_index(hostile(), NODES, method="greedy", group=group)


def fail(place: str) -> None:
    if place != where or graph.rank != lost:
        return
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "raise":
        raise ValueError("a mistake of the program")
    # Longer than the others' timeout; they end it by ending themselves.
    sys.stdin.read()
    os._exit(4)


x = random(NODES, 4)[graph.owned_nodes]
weight = torch.ones(4, dtype=torch.float64, requires_grad=True)
fail("forward")
out = distributed.aggregate(graph, x * weight)
fail("normalisation")
out = out - AllRows(group, out).mean(out)
fail("backward")
out.square().sum().backward()
fail("gradients")
distributed.add_gradients([weight], group)
print("done", flush=True)
