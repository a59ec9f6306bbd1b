"""Graphs over several processes cost those nothing who have none: their code is not even imported."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from torch_geometric import nn as gnn
import onehop

edge_index = torch.randint(9, (2, 40))
onehop.patch()
for layer in (gnn.GCNConv(4, 4), gnn.GATv2Conv(4, 4), gnn.ResGatedGraphConv(4, 4)):
    layer(torch.randn(9, 4), edge_index)
imported = [any(name.startswith("onehop.distributed") for name in sys.modules)]
# Another patch also finds what PyG has rendered since.
onehop.unpatch()
onehop.patch()
before = set(onehop.patched())
import onehop.distributed
after = set(onehop.patched())
onehop.unpatch()
onehop.patch()
again = set(onehop.patched())
onehop.unpatch()
print(json.dumps([imported, sorted(after - before), sorted(after ^ again), list(onehop.patched())]))
"""


def test_distributed_is_imported_by_its_users_and_its_layers_are_patched_then():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    imported, added, changed, left = json.loads(done.stdout)
    assert imported == [False]
    assert "torch.nn.functional.dropout" in added
    assert changed == []
    assert left == []
