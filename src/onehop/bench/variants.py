"""The ways to train one and the same PyG model: what its layers are given for edges, and what is patched."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import onehop
from onehop.bench.cases import Workload
from onehop.bench.peers import isplib
from onehop.bench.peers.base import beta_warnings_ignored, import_reason
from onehop.bench.peers.sparse_tensor import sparse_tensor
from onehop.bench.peers.torch_csr import csr_tensor
from onehop.errors import ArgumentError


@dataclass(frozen=True)
class Variant:
    """A way to train.

    Attributes:
        name: For tables.
        edges: Makes what the model's layers are given for edges.
        context: Entered around every epoch.
        available: Why it cannot be used here; None if it can.
        makes_messages: Whether it makes a row for every edge.
        prepare: Done to the model before it is trained.
    """

    name: str
    edges: Callable[[Workload], Any]
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    available: Callable[[], str | None] = lambda: None
    makes_messages: bool = False
    prepare: Callable[[torch.nn.Module], None] = lambda _: None


def _edge_index(workload: Workload) -> Any:
    return workload.edge_index


def _torch_csr(workload: Workload) -> Any:
    with beta_warnings_ignored():
        return csr_tensor(workload, torch.int64, weighted=False)


def _isplib(workload: Workload) -> Any:
    isplib.forget()
    return sparse_tensor(workload, None)


def _keep_normalisation(model: torch.nn.Module) -> None:
    """Has GCN normalise a SparseTensor once; iSpLib would not know a new one again in every epoch."""
    from torch_geometric.nn import GCNConv

    for layer in model.children():
        if isinstance(layer, GCNConv):
            layer.cached = True


ONEHOP = Variant("onehop", _edge_index, lambda: onehop.patch())
FRESH_MEMORY = Variant("onehop-fresh-memory", _edge_index, lambda: onehop.patch(keep_memory=False))
NO_REUSE = Variant("onehop-no-reuse", _edge_index, lambda: onehop.patch(reuse=False))
NO_ASSOCIATION = Variant("onehop-no-association", _edge_index, lambda: onehop.patch(associate=False))
PYG = Variant("pyg-edge_index", _edge_index, makes_messages=True)
TORCH_CSR = Variant("pyg-torch-csr", _torch_csr)
SPARSE_TENSOR = Variant(
    "pyg-SparseTensor",
    lambda workload: sparse_tensor(workload, None),
    available=lambda: import_reason("torch_sparse"),
)
ISPLIB = Variant("pyg-isplib", _isplib, isplib.patched, isplib.isplib_reason, prepare=_keep_normalisation)
PEERS = {variant.name: variant for variant in (PYG, TORCH_CSR, SPARSE_TENSOR, ISPLIB)}
# Name of an ablation -> what shows it.
ABLATIONS = {"keep_memory": FRESH_MEMORY, "reuse": NO_REUSE, "associate": NO_ASSOCIATION}


def choose(ablations: list[str], peers: list[str] | None = None) -> list[Variant]:
    """onehop, its ablations, and the peers of these names; all of them for None.

    Raises:
        ArgumentError: An ablation or a peer is unknown.
    """
    for name in ablations:
        if name not in ABLATIONS:
            raise ArgumentError(f"ablation: expected some of {', '.join(ABLATIONS)}, got {name!r}.")
    for name in peers or ():
        if name not in PEERS:
            raise ArgumentError(f"peers: expected some of {', '.join(PEERS)}, got {name!r}.")
    chosen = PEERS if peers is None else peers
    return [ONEHOP, *(ABLATIONS[name] for name in ablations), *(PEERS[name] for name in chosen)]
