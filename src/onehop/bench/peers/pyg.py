"""PyG's two ways: gather and scatter over a plain edge_index, and the sorted EdgeIndex."""

from typing import Any

from torch import Tensor

from onehop.bench.cases import Case
from onehop.bench.peers.base import Forward, Peer, beta_warnings_ignored


class PygScatter(Peer):
    """The work of a PyG layer on a plain ``edge_index``: gather, multiply, scatter."""

    name = "pyg-edge_index"
    needs = ("torch_geometric.utils",)

    def extra_bytes(self, case: Case) -> int:
        """Return the bytes of the gathered rows, of the weighted rows, and of their gradients."""
        return case.workload.num_edges * case.width * 4 * (2 if case.weighted or case.backward else 1)

    def forward(self, case: Case) -> Forward:
        """Return the function; there is nothing to prepare."""
        from torch_geometric.utils import scatter

        source, target = case.workload.edge_index
        weight = None if case.weight is None else case.weight.unsqueeze(-1)
        nodes, reduce = case.workload.num_nodes, case.reduce

        def forward(x: Tensor) -> Tensor:
            message = x.index_select(0, source)
            if weight is not None:
                message = message * weight
            result: Tensor = scatter(message, target, 0, nodes, reduce)
            return result

        return forward


class PygEdgeIndex(Peer):
    """``torch_geometric.EdgeIndex``, sorted by destination, with its caches filled."""

    name = "pyg-EdgeIndex"
    needs = ("torch_geometric",)

    def forward(self, case: Case) -> Forward:
        """Sort the edges and fill the caches."""
        workload = case.workload
        edges, order = workload.once(
            "EdgeIndex", lambda: sorted_edges(workload.edge_index, workload.num_nodes)
        )
        with_values = {} if case.weight is None else {"input_value": case.weight[order]}
        reduce = case.reduce
        return lambda x: edges.matmul(x, reduce=reduce, transpose=True, **with_values)


def sorted_edges(edge_index: Tensor, num_nodes: int) -> tuple[Any, Tensor]:
    """Return ``edge_index`` [2, E] as a sorted EdgeIndex with filled caches, and the order [E]."""
    from torch_geometric import EdgeIndex

    with beta_warnings_ignored():
        edges, order = EdgeIndex(edge_index, sparse_size=(num_nodes, num_nodes)).sort_by("col")
        edges.fill_cache_()
    return edges, order
