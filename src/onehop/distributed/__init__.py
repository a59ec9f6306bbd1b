"""Graphs partitioned over several processes, on torch.distributed; start the processes with torchrun."""

import sys

from onehop.distributed.aggregate import aggregate as aggregate
from onehop.distributed.agreement import naming_lost_ranks as naming_lost_ranks
from onehop.distributed.attention import attention as attention, gat as gat, gatv2 as gatv2
from onehop.distributed.converted import alone as alone, convert as convert
from onehop.distributed.exchange import Traffic as Traffic
from onehop.distributed.files import save as save
from onehop.distributed.graph import DistributedGraph as DistributedGraph
from onehop.distributed.hetero import DistributedHeteroGraph as DistributedHeteroGraph
from onehop.distributed.partition import partition as partition, partition_types as partition_types
from onehop.distributed.remote_rows import RemoteRows as RemoteRows
from onehop.distributed.requests import RowRequest as RowRequest
from onehop.distributed.streams import same_random as same_random
from onehop.distributed.sums import (
    add_gradients as add_gradients,
    sum_over_processes as sum_over_processes,
    total as total,
)
from onehop.loading import DISTRIBUTED

# Layers that are patched ignore divided graphs until this package is imported.
DISTRIBUTED.provide(sys.modules[__name__])
