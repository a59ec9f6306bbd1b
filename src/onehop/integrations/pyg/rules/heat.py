"""HEATConv with linear steps before and after the sum over edges, and one weight for each edge and head.

For every edge, PyG joins the rows of both ends, an embedding of the edge's type, and features of the edge,
and multiplies the joined row. The product with joined columns is a sum of products, and the nodes' products
are computed once for each node. The matrix is applied to the sum of the edges' features, and not to each
edge.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout, leaky_relu, linear
from torch_geometric.nn.dense import Linear

from onehop.compiler.modules import modules_reason
from onehop.graph import Graph
from onehop.integrations.pyg.admit import BOTH, PerEdge, Rows, alike
from onehop.integrations.pyg.call import Call, Plan
from onehop.integrations.pyg.leave import leave_if, need
from onehop.integrations.pyg.rules.table import rule
from onehop.messages import End, Operand, Program, Step
from onehop.ops import edge_softmax
from onehop.ops.contexts import autocasts
from onehop.ops.message import DTYPES, reduce_messages

_FORM = "W (source, features) * softmax for each head"


@rule("HEATConv", compiles=True, listed=True, x=Rows(2, BOTH), edge_type_emb=PerEdge(2), edge_attr=PerEdge(2))
def heat(call: Call, x: Tensor, of_type: Tensor, features: Tensor) -> Plan:
    """HEATConv over edges: W1 applied to the sources, and W2 to the sums of the edges' features."""
    layer, edges = call.layer, call.edges
    alike(x, x.dtype, of_type, features, *layer.parameters())
    _check_layer(call, x)
    need(features.size(1) == layer.edge_attr_emb.weight.size(1))
    embedded_width = layer.edge_attr_emb.weight.size(0)
    need(layer.att.weight.size(1) == 2 * x.size(1) + of_type.size(1) + embedded_width)
    need(layer.lin.weight.size(1) == x.size(1) + embedded_width)
    graph = edges.graph()
    # If values are infinite, another order of sums and products gives other results.
    need(all(map(_is_finite, (x, of_type, features))), "its features are not finite")

    def run() -> Tensor:
        columns = x.size(1)
        embedded = leaky_relu(linear(features, layer.edge_attr_emb.weight), layer.negative_slope)
        of_target, of_source, *of_edge = layer.att.weight.split(
            [columns, columns, of_type.size(1), embedded.size(1)], 1
        )
        score = linear(of_type, of_edge[0]) + linear(embedded, of_edge[1])
        for end, weight in ((edges.sending, of_source), (1 - edges.sending, of_target)):
            score = score + linear(x, weight).index_select(0, edges.ends(end))
        alpha = edge_softmax(graph, leaky_relu(score, layer.negative_slope), backend=call.backend)
        alpha = dropout(alpha, p=layer.dropout, training=layer.training)
        values, behind = layer.lin.weight.split([columns, embedded.size(1)], 1)
        out = _weighted(graph, End.SOURCE, linear(x, values), alpha, call.reduce)
        if layer.lin.bias is not None:
            # The bias is weighted too.
            embedded = torch.cat([embedded, embedded.new_ones(len(embedded), 1)], 1)
            behind = torch.cat([behind, layer.lin.bias.unsqueeze(1)], 1)
        return out + linear(_weighted(graph, End.EDGE, embedded, alpha, call.reduce), behind)

    return Plan(_FORM, call.reduce, graph, x, run, backend=call.backend)


def _check_layer(call: Call, x: Tensor) -> None:
    """Raises :class:`Leave` if this layer instance has no fast path for these features."""
    layer = call.layer
    steps = (layer.edge_attr_emb, layer.att, layer.lin)
    need(x.is_cpu and not call.backend, "its messages are computed on the CPU alone")
    need(x.dtype in DTYPES, f"its messages are of {x.dtype}")
    need(not autocasts(x), "autocast decides on the dtypes of its scores")
    need(call.edges.count > 0, "there are no edges")
    sums = call.reduce in ("sum", "mean")
    need(sums, "messages that a matrix multiplies are reduced by sum and mean alone")
    without = layer.edge_attr_emb.bias is None and layer.att.bias is None
    need(without and all(type(step) is Linear for step in steps), "a linear step in it was replaced")
    leave_if(modules_reason(steps))


def _is_finite(numbers: Tensor) -> bool:
    return bool(numbers.detach().sum().isfinite())


def _weighted(graph: Graph, end: End, rows: Tensor, alpha: Tensor, reduce: str) -> Tensor:
    """Return the rows of sources or edges, reduced with the weights of each head, [num_dst, H, width].

    Args:
        graph: The edges.
        end: Whether the rows belong to sources or to edges.
        rows: [N, width] or [E, width].
        alpha: [E, H].
        reduce: "sum" or "mean".
    """
    heads, columns = alpha.size(1), rows.size(1)
    width = heads * columns
    steps = (
        Step("spread", (0,), width, (float(columns), 0.0)),
        Step("spread", (1,), width),
        Step("multiply", (2, 3), width),
    )
    program = Program((Operand(end, columns), Operand(End.EDGE, heads)), steps, 4)
    (out,) = reduce_messages(graph, program, [rows, alpha], (reduce,))
    return out.view(-1, heads, columns)
