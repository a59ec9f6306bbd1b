"""Run by test_failures: rank 1 ends, or stops answering, in the middle of a training step."""

import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist

import onehop
from onehop import distributed
from tests.distributed.cases import NODES, hostile, random

torch.set_num_threads(1)
dist.init_process_group("gloo")
# The time limit is that of the group; the start may take longer.
group = dist.new_group(timeout=datetime.timedelta(seconds=int(sys.argv[2])))
graph = distributed.DistributedGraph.from_edge_index(hostile(), NODES, method="greedy", group=group)
x = random(NODES, 4)[graph.owned_nodes].requires_grad_()
out = distributed.aggregate(graph, x)
if graph.rank == 1:
    if sys.argv[1] == "ends":
        os._exit(3)
    # Longer than the others' timeout; they end it by ending themselves.
    sys.stdin.read()
    os._exit(4)
begin = time.monotonic()
try:
    out.sum().backward()
except onehop.errors.CommunicationError as error:
    print(json.dumps({"error": str(error), "seconds": time.monotonic() - begin}), flush=True)
    os._exit(0)
