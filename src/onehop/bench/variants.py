"""The ways to train one and the same PyG model: what its layers are given for edges, and what is patched."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import onehop
from onehop.bench.cases import Workload
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
    """

    name: str
    edges: Callable[[Workload], Any]
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    available: Callable[[], str | None] = lambda: None
    makes_messages: bool = False


def _edge_index(workload: Workload) -> Any:
    return workload.edge_index


def _torch_csr(workload: Workload) -> Any:
    with beta_warnings_ignored():
        return csr_tensor(workload, torch.int64, weighted=False)


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
# Name of an ablation -> what shows it.
ABLATIONS = {"keep_memory": FRESH_MEMORY, "reuse": NO_REUSE, "associate": NO_ASSOCIATION}


def choose(ablations: list[str]) -> list[Variant]:
    """onehop, its ablations, and the peers.

    Raises:
        ArgumentError: An ablation is unknown.
    """
    for name in ablations:
        if name not in ABLATIONS:
            raise ArgumentError(f"ablation: expected some of {', '.join(ABLATIONS)}, got {name!r}.")
    return [ONEHOP, *(ABLATIONS[name] for name in ablations), PYG, TORCH_CSR, SPARSE_TENSOR]
