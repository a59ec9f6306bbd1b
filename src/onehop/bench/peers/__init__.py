"""Peers that onehop is measured against."""

import torch

from onehop.bench.peers.base import Peer
from onehop.bench.peers.dgl import DglPeer
from onehop.bench.peers.isplib import Isplib
from onehop.bench.peers.numba_loop import NumbaLoop
from onehop.bench.peers.ours import Onehop
from onehop.bench.peers.pyg import PygEdgeIndex, PygScatter
from onehop.bench.peers.scipy_csr import ScipyCsr
from onehop.bench.peers.sparse_tensor import TorchSparse
from onehop.bench.peers.torch_csr import TorchCsr
from onehop.errors import ArgumentError

__all__ = ["PEERS", "Onehop", "Peer", "choose"]

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        TorchCsr(torch.int32, reduce_kernel=False),
        TorchCsr(torch.int64, reduce_kernel=False),
        TorchCsr(torch.int32, reduce_kernel=True),
        TorchCsr(torch.int64, reduce_kernel=True),
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
    """The peers of these names; all of them for None.

    Raises:
        ArgumentError: A name is unknown.
    """
    if names is None:
        return list(PEERS.values())
    for name in names:
        if name not in PEERS:
            raise ArgumentError(f"peers: expected some of {', '.join(PEERS)}, got {name!r}.")
    return [PEERS[name] for name in names]
