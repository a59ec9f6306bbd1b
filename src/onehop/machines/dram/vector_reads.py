"""Requests of an aggregation that one controller serves: the feature vectors of a graph's edges."""

import numpy as np

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.common.checks import check_integer
from onehop.machines.dram.device import Dram
from onehop.machines.dram.requests import Requests

_ELEMENT_BYTES = 4  # float32


def vector_reads(graph: Graph, width: int, dram: Dram, most: int) -> Requests:
    """Reads of the source's vector of every edge, target by target.

    Vectors lie one after another by number, each from the begin of a burst.

    Args:
        graph: The graph.
        width: Columns of the vectors, of 4 bytes each.
        dram: The device, whose bursts are read.
        most: Bursts at most: the first ones.

    Raises:
        ArgumentError: The width or the number is not a positive integer, or the graph has no edges.
    """
    for name, value in (("width", width), ("requests", most)):
        check_integer(name, value)
    if not graph.num_edges:
        raise ArgumentError("graph: it has no edges, so an aggregation reads no vectors.")
    bursts = -(-width * _ELEMENT_BYTES // dram.organisation.burst_bytes)
    sources = graph.col[: -(-most // bursts)].numpy().astype(np.int64)
    wanted = (sources[:, None] * bursts + np.arange(bursts)).reshape(-1)[:most]
    return Requests(wanted, np.zeros(len(wanted), dtype=np.uint8))
