"""Peers with which onehop is compared, and onehop itself."""

import torch

from onehop.bench.cases import Case
from onehop.bench.peers.base import Forward, Peer
from onehop.bench.peers.dgl import DglPeer
from onehop.bench.peers.isplib import Isplib
from onehop.bench.peers.numba_loop import NumbaLoop
from onehop.bench.peers.pyg import PygEdgeIndex, PygScatter
from onehop.bench.peers.sparse import ScipyCsr, TorchCsr, TorchSparse
from onehop.errors import ArgumentError
from onehop.ops import aggregate

__all__ = ["PEERS", "Onehop", "Peer", "choose"]


class Onehop(Peer):
    """``onehop.aggregate`` on a prepared Graph."""

    name = "onehop"

    def forward(self, case: Case) -> Forward:
        """Return the call; the first backward pass, which is not timed, builds the transposed graph."""
        graph, weight, reduce = case.workload.graph, case.weight, case.reduce
        return lambda x: aggregate(graph, x, weight, reduce)


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        *(
            TorchCsr(dtype, reduce_kernel=kernel)
            for kernel in (False, True)
            for dtype in (torch.int32, torch.int64)
        ),
        PygScatter(),
        PygEdgeIndex(),
        ScipyCsr(),
        NumbaLoop(),
        TorchSparse(),
        Isplib(),
        DglPeer(),
    )
}


def choose(names: list[str] | None) -> list[Peer]:
    """Return the peers of these names; None means all peers.

    Raises:
        ArgumentError: A name is unknown.
    """
    if names is None:
        return list(PEERS.values())
    for name in names:
        if name not in PEERS:
            raise ArgumentError(f"peers: expected some of {', '.join(PEERS)}, got {name!r}.")
    return [PEERS[name] for name in names]
