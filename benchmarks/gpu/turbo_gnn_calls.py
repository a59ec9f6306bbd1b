"""turbo_gnn, the library of "On Efficient Scaling of GNNs via IO-Aware Layers Implementations" (2026).

Written from its public functions (yandex-research/On-Efficient-Scaling-Of-GNNs, commit e26d564);
they need its compiled CUDA extension, and have run nowhere for onehop yet. Their settings are its defaults.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.operators import Inputs
from onehop.bench.peers.base import import_reason

Call = Callable[[Inputs], Tensor]
# By the names of benchmarks.gpu.operators.OPERATORS.
OPERATORS = ("sum", "mean", "max", "min", "gatv2", "attention")
# cuSPARSE chooses its algorithm; threads of the kernel that makes edge weights.
_ALGORITHM, _THREADS = -1, 256


def missing() -> str | None:
    """Why turbo_gnn cannot be measured here; None if it can."""
    return import_reason("turbo_gnn")


def graph_of(edge_index: Tensor, nodes: int) -> Any:
    """Its graph of both directions, rows divided by degree, with 32-bit numbers."""
    from turbo_gnn import AdjacencyForwardBackwardWithNodeBuckets

    edges = edge_index.cpu()
    graph = AdjacencyForwardBackwardWithNodeBuckets.from_edge_list(edges, nodes, index_dtype=torch.int32)
    return graph.to(edge_index.device)


def call_of(operator: str, graph: Any) -> Call:
    """One of :data:`OPERATORS`.

    It names ends by another rule: ``x`` and K are destinations', ``x_neighbors``, Q and V sources'.
    """
    import turbo_gnn

    def spmm(inputs: Inputs, norm: str) -> Tensor:
        x = inputs["x"]
        if x.dtype != torch.float32:
            raise NotImplementedError("spmm_aggr takes float32 alone")
        out: Tensor = turbo_gnn.spmm_aggr(
            x, graph.forward_indptr, graph.forward_indices, norm, _ALGORITHM, _THREADS
        )
        return out

    def attention(inputs: Inputs) -> Tensor:
        query, key, value = inputs["query"], inputs["key"], inputs["value"]
        out: Tensor = turbo_gnn.graph_transformer_aggr(
            graph, value.flatten(1), Q=key, K=query, V=value, scale=query.size(-1) ** -0.5
        )
        return out

    calls: dict[str, Call] = {
        "sum": lambda inputs: spmm(inputs, "none"),
        "mean": lambda inputs: spmm(inputs, "right"),
        "max": lambda inputs: turbo_gnn.reduction_aggr(graph, inputs["x"], reduce="max"),
        "min": lambda inputs: turbo_gnn.reduction_aggr(graph, inputs["x"], reduce="min"),
        "gatv2": lambda inputs: turbo_gnn.gatv2_aggr(
            graph, inputs["x_dst"], x_neighbors=inputs["x_src"], attention_weights=inputs["att"]
        ),
        "attention": attention,
    }
    return calls[operator]
