"""The specification as a backend: plain torch on any device, slow and simple."""

from collections.abc import Callable
from typing import Any

import torch

from onehop.graph import Graph
from onehop.reference.aggregate import Aggregate, run_aggregate
from onehop.reference.attention import Attention, AttentionGrad, run_attention, run_attention_grad
from onehop.reference.edge_softmax import (
    EdgeSoftmax,
    EdgeSoftmaxGrad,
    run_edge_softmax,
    run_edge_softmax_grad,
)
from onehop.reference.extremum import Extremum, ExtremumGrad, run_extremum, run_extremum_grad
from onehop.reference.fusedmm import Fusedmm, run_fusedmm
from onehop.reference.independent import independent
from onehop.reference.sddmm import Sddmm, run_sddmm
from onehop.reference.tensor_product import (
    TensorProduct,
    TensorProductEdges,
    run_tensor_product,
    run_tensor_product_edges,
)

_FORMULAS: dict[type, Callable[[Graph, Any], Any]] = {
    Aggregate: run_aggregate,
    Attention: run_attention,
    AttentionGrad: run_attention_grad,
    EdgeSoftmax: run_edge_softmax,
    EdgeSoftmaxGrad: run_edge_softmax_grad,
    Extremum: run_extremum,
    ExtremumGrad: run_extremum_grad,
    Fusedmm: run_fusedmm,
    Sddmm: run_sddmm,
    TensorProduct: run_tensor_product,
    TensorProductEdges: run_tensor_product_edges,
}


class ReferenceBackend:
    """Gathers every edge's row and scatters it, as the formulas state; it is used only by name."""

    name = "reference"

    @property
    def operators(self) -> frozenset[type]:
        """The types of calls that it runs: all except those that only one framework has."""
        return frozenset(_FORMULAS)

    def describe(self) -> str:
        """Return one line that describes the backend."""
        return "plain torch, one row an edge; only by name"

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Return None, because the backend runs on all tensors."""
        return None

    def plan_of_sum(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> None:
        """Return None, because the backend has no plans."""
        return

    def run(self, graph: Graph, call: Any) -> Any:
        """Return the results, computed by the formula."""
        with independent():
            return _FORMULAS[type(call)](graph, call)
