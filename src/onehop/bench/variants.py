"""The ways to train the same PyG model: what its layers get as edges, and what is patched."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch

import onehop
from onehop.bench.cases import Workload
from onehop.bench.peers import isplib
from onehop.bench.peers.base import beta_warnings_ignored, import_reason
from onehop.bench.peers.sparse import csr_tensor, sparse_tensor
from onehop.errors import ArgumentError

# Maximum relative difference of losses, because Adam turns rounding errors of small gradients into steps.
LOSS_TOLERANCE = 1e-3
# Maximum difference with products in bfloat16, which has 8 bits of precision.
_BFLOAT16_TOLERANCE = 1e-1


@dataclass(frozen=True)
class Variant:
    """A way to train.

    Attributes:
        name: The variant's name in tables.
        edges: Makes the argument for edges that the model's layers get.
        context: Entered around every epoch.
        available: Returns why the variant cannot be used here; None if it can.
        makes_messages: Whether the variant creates a row for every edge.
        prepare: Applied to the model before training.
        autocast: The dtype of torch's autocast in forward passes; None means no autocast.
        tolerance: Maximum relative difference of its losses from PyG's.
        takes_edge_index: Whether the layers get ``edge_index``.
    """

    name: str
    edges: Callable[[Workload], Any]
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    available: Callable[[], str | None] = lambda: None
    makes_messages: bool = False
    prepare: Callable[[torch.nn.Module], None] = lambda _: None
    autocast: torch.dtype | None = None
    tolerance: float = LOSS_TOLERANCE
    takes_edge_index: bool = True


_edge_index: Callable[[Workload], Any] = attrgetter("edge_index")


def _torch_csr(workload: Workload) -> Any:
    with beta_warnings_ignored():
        return csr_tensor(workload, torch.int64, weighted=False)


def _isplib(workload: Workload) -> Any:
    isplib.forget()
    return sparse_tensor(workload, None)


def _keep_normalisation(model: torch.nn.Module) -> None:
    """Make GCN normalise a SparseTensor only once, because iSpLib would see a new one in every epoch."""
    from torch_geometric.nn import GCNConv

    for layer in model.modules():
        if isinstance(layer, GCNConv):
            layer.cached = True


def _in_bfloat16(variant: Variant, name: str) -> Variant:
    return replace(variant, name=name, autocast=torch.bfloat16, tolerance=_BFLOAT16_TOLERANCE)


ONEHOP = Variant("onehop", _edge_index, lambda: onehop.patch())
FRESH_MEMORY = Variant("onehop-fresh-memory", _edge_index, lambda: onehop.patch(keep_memory=False))
NO_REUSE = Variant("onehop-no-reuse", _edge_index, lambda: onehop.patch(reuse=False))
NO_ASSOCIATION = Variant("onehop-no-association", _edge_index, lambda: onehop.patch(associate=False))
PYG = Variant("pyg-edge_index", _edge_index, makes_messages=True)
TORCH_CSR = Variant("pyg-torch-csr", _torch_csr, takes_edge_index=False)
SPARSE_TENSOR = Variant(
    "pyg-SparseTensor",
    lambda workload: sparse_tensor(workload, None),
    available=lambda: import_reason("torch_sparse"),
    takes_edge_index=False,
)
ISPLIB = Variant(
    "pyg-isplib",
    _isplib,
    isplib.patched,
    isplib.Isplib().available,
    prepare=_keep_normalisation,
    takes_edge_index=False,
)
PEERS = {variant.name: variant for variant in (PYG, TORCH_CSR, SPARSE_TENSOR, ISPLIB)}
COMPILED = replace(PYG, name="pyg-compiled", prepare=lambda model: model.compile())
INPUTS_OF_PYG = (PYG, TORCH_CSR, SPARSE_TENSOR, COMPILED)
"""What PyG's users can choose between without another library's kernels."""
# Name of an ablation -> the variant that shows it.
ABLATIONS = {"keep_memory": FRESH_MEMORY, "reuse": NO_REUSE, "associate": NO_ASSOCIATION}
# Further ways by their names on the command line: 16 bits with autocast, and torch.compile.
FURTHER = {
    "bf16": _in_bfloat16(ONEHOP, "onehop-bf16"),
    "compiled": replace(ONEHOP, name="onehop-compiled", prepare=lambda model: model.compile(fullgraph=True)),
    "pyg-bf16": _in_bfloat16(PYG, "pyg-bf16"),
    "pyg-compiled": COMPILED,
}
BY_NAME = {variant.name: variant for variant in (ONEHOP, *PEERS.values(), *FURTHER.values())}


def choose(
    ablations: list[str], peers: list[str] | None = None, further: Sequence[str] = ()
) -> list[Variant]:
    """Return onehop, its ablations, further ways, and the peers of these names; None means all peers.

    Raises:
        ArgumentError: A name is unknown.
    """
    for option, chosen, allowed in (
        ("ablation", ablations, ABLATIONS),
        ("variants", further, FURTHER),
        ("peers", peers or (), PEERS),
    ):
        for name in chosen:
            if name not in allowed:
                raise ArgumentError(f"{option}: expected some of {', '.join(allowed)}, got {name!r}.")
    ways = [*(ABLATIONS[name] for name in ablations), *(FURTHER[name] for name in further)]
    return [ONEHOP, *ways, *(PEERS[name] for name in (PEERS if peers is None else peers))]
