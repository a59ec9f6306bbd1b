"""The layers in DGL, and in plain torch with sparse matrices that are kept for the graph.

Each function takes the parameters of a PyG layer, so that all give the same numbers. What depends only on the
graph (self-loops, normalisation, the transposed matrix, DGL's formats) is computed once, before anything is
timed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from onehop.bench.peers.base import beta_warnings_ignored, import_reason
from onehop.bench.peers.dgl import help_import
from onehop.graph import Graph

SPARSE, DGL = "torch's kept sparse product", "DGL"

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Edges:
    """The edges that a layer aggregates over.

    Attributes:
        edge_index: [2, E], with self-loops if the layer adds them.
        num_nodes: Number of nodes.
        weight: [E], GCN's normalisation; None means no weights.
    """

    edge_index: Tensor
    num_nodes: int
    weight: Tensor | None = None

    @classmethod
    def of(cls, layer: Any, edge_index: Tensor, num_nodes: int) -> "Edges":
        """Return the edges that a PyG layer uses."""
        from torch_geometric.nn import GCNConv
        from torch_geometric.nn.conv.gcn_conv import gcn_norm
        from torch_geometric.utils import add_self_loops, remove_self_loops

        if isinstance(layer, GCNConv):
            edge_index, weight = gcn_norm(edge_index, num_nodes=num_nodes)
            return cls(edge_index, num_nodes, weight)
        if getattr(layer, "add_self_loops", False):
            edge_index, _ = add_self_loops(remove_self_loops(edge_index)[0], num_nodes=num_nodes)
        return cls(edge_index, num_nodes)

    def matrix(self, *, transposed: bool = False) -> Tensor:
        """Return a CSR tensor [N, N] with one row per destination or, if transposed, per source."""
        edge_index = self.edge_index.flip(0) if transposed else self.edge_index
        graph = Graph.from_edge_index(edge_index, num_nodes=self.num_nodes)
        values = torch.ones(graph.num_edges, device="cpu") if self.weight is None else self.weight
        if graph.perm is not None:
            values = values[graph.perm.long()]
        shape = (self.num_nodes, self.num_nodes)
        # MKL uses 32-bit indices without conversion.
        with beta_warnings_ignored():
            return torch.sparse_csr_tensor(graph.rowptr.int(), graph.col.int(), values, shape, device="cpu")


class _KeptProduct(torch.autograd.Function):
    """A product with a sparse matrix; its gradient is a product with the stored transposed matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        product: Tensor = torch.sparse.mm(matrix, x)
        return product

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return torch.sparse.mm(ctx.transposed, grad.contiguous()), None, None


def by_sparse_products(layer: Any, edges: Edges) -> Forward | None:
    """Return the layer by torch's sparse products; None for attention, whose matrix values change."""
    from torch_geometric.nn import GCNConv, SAGEConv

    if isinstance(layer, GCNConv):
        matrix, transposed = edges.matrix(), edges.matrix(transposed=True)

        def summed(x: Tensor) -> Tensor:
            product = _KeptProduct.apply(layer.lin(x), matrix, transposed)  # type: ignore[no-untyped-call]
            out: Tensor = product + layer.bias
            return out

        return summed
    if isinstance(layer, SAGEConv):
        matrix = edges.matrix()

        def least(x: Tensor) -> Tensor:
            out: Tensor = layer.lin_l(torch.sparse.mm(matrix, x, "amin")) + layer.lin_r(x)
            return out

        return least
    return None


def why_not_dgl() -> str | None:
    """Return why DGL cannot be used; None if it can."""
    help_import()
    return import_reason("dgl")


def by_dgl(layer: Any, edges: Edges) -> Forward:
    """Return the layer by DGL's operators, in the order in which DGL's own layers use them."""
    import dgl.function
    import dgl.ops
    from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv

    graph = dgl.graph(tuple(edges.edge_index), num_nodes=edges.num_nodes).int()
    graph.create_formats_()

    def attended(scores: Tensor, values: Tensor) -> Tensor:
        attention = dgl.ops.edge_softmax(graph, scores)
        out: Tensor = dgl.ops.u_mul_e_sum(graph, values, attention)
        return out.flatten(1)

    if isinstance(layer, GCNConv):
        weight = edges.weight
        assert weight is not None
        column = weight.unsqueeze(-1)
        return lambda x: dgl.ops.u_mul_e_sum(graph, layer.lin(x), column) + layer.bias
    if isinstance(layer, SAGEConv):

        def least(x: Tensor) -> Tensor:
            with graph.local_scope():
                graph.ndata["x"] = x
                graph.update_all(dgl.function.copy_u("x", "m"), dgl.function.min("m", "out"))
                out: Tensor = layer.lin_l(graph.ndata["out"]) + layer.lin_r(x)
            return out

        return least
    shape = (-1, layer.heads, layer.out_channels)
    if isinstance(layer, GATv2Conv):

        def gatv2(x: Tensor) -> Tensor:
            source, target = layer.lin_l(x).view(shape), layer.lin_r(x).view(shape)
            sums = leaky_relu(dgl.ops.u_add_v(graph, source, target), layer.negative_slope)
            out: Tensor = attended((sums * layer.att).sum(-1, keepdim=True), source) + layer.bias
            return out

        return gatv2

    def transformer(x: Tensor) -> Tensor:
        query, key, value = (
            each(x).view(shape) for each in (layer.lin_query, layer.lin_key, layer.lin_value)
        )
        scores = dgl.ops.u_dot_v(graph, key, query) / layer.out_channels**0.5
        out: Tensor = attended(scores, value) + layer.lin_skip(x)
        return out

    return transformer
