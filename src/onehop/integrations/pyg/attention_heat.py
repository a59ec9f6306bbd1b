"""HEATConv: its linear steps before and behind the sum over edges, its weights as numbers of edges and heads.

PyG multiplies what it joins for every edge: the rows of both ends, an embedding of the edge's type, and
features of the edge. A product with what is joined is a sum of products, of which those of nodes are made
once for each; and the sum of an edge's features times a matrix is the matrix times the sum.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout, leaky_relu, linear
from torch_geometric.nn.dense import Linear

from onehop.compiler.modules import modules_reason
from onehop.graph import Graph
from onehop.integrations.pyg.attention_operands import dtypes_reason, is_feature
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, OUT_OF_RANGE, fits
from onehop.messages import End, Operand, Program, Step
from onehop.ops import edge_softmax
from onehop.ops.contexts import autocasts
from onehop.ops.message import DTYPES, reduce_messages

_FORM = "W (source, features) * softmax for each head"


def heat(call: Propagation) -> AttentionTask | str:
    """HEATConv over edges: W1 applied to sources, W2 to the sums of the edges' features."""
    layer = call.layer
    x, of_type, features = (call.operands[name] for name in ("x", "edge_type_emb", "edge_attr"))
    if call.known is not None:
        return "edge_index is a sparse matrix, for which PyG has its own code"
    reason = dtypes_reason(call, 2, x, of_type, features, *layer.parameters()) or _layer_reason(call, x)
    if reason is not None:
        return reason
    if not _fit(call, x, of_type, features):
        return LEFT_TO_PYG
    if not fits(call.sizes, 0, x.size(0)) or not fits(call.sizes, 1, x.size(0)):
        return LEFT_TO_PYG
    graph = call.graph(x.size(0))
    if graph is None:
        return OUT_OF_RANGE
    # In another order, infinities meet elsewhere.
    if not all(map(_is_finite, (x, of_type, features))):
        return "its features are not finite"

    def run() -> Tensor:
        columns = x.size(1)
        given = leaky_relu(linear(features, layer.edge_attr_emb.weight), layer.negative_slope)
        of_target, of_source, *of_edge = layer.att.weight.split(
            [columns, columns, of_type.size(1), given.size(1)], 1
        )
        score = linear(of_type, of_edge[0]) + linear(given, of_edge[1])
        for end, weight in ((call.sending, of_source), (1 - call.sending, of_target)):
            score = score + linear(x, weight).index_select(0, call.ends(end))
        alpha = edge_softmax(graph, leaky_relu(score, layer.negative_slope), backend=call.backend)
        alpha = dropout(alpha, p=layer.dropout, training=layer.training)
        values, behind = layer.lin.weight.split([columns, given.size(1)], 1)
        out = _weighted(graph, End.SOURCE, linear(x, values), alpha, call.reduce)
        if layer.lin.bias is not None:
            # The bias is weighted, too.
            given = torch.cat([given, given.new_ones(len(given), 1)], 1)
            behind = torch.cat([behind, layer.lin.bias.unsqueeze(1)], 1)
        return out + linear(_weighted(graph, End.EDGE, given, alpha, call.reduce), behind)

    return AttentionTask(_FORM, call.reduce, graph, x, run)


def _layer_reason(call: Propagation, x: Tensor) -> str | None:
    """Return why the layer, as it is set up, has no fast path over these features; None if it has."""
    layer = call.layer
    steps = (layer.edge_attr_emb, layer.att, layer.lin)
    if not x.is_cpu or call.backend:
        return "its messages are computed on the CPU alone"
    if x.dtype not in DTYPES:
        return f"its messages are of {x.dtype}"
    if autocasts(x):
        return "autocast decides on the dtypes of its scores"
    if call.num_edges == 0:
        return "there are no edges"
    if call.reduce not in ("sum", "mean"):
        return "messages that a matrix multiplies are reduced by sum and mean alone"
    without = (layer.edge_attr_emb.bias, layer.att.bias)
    if any(type(step) is not Linear for step in steps) or any(bias is not None for bias in without):
        return "a linear step in it was replaced"
    return modules_reason(steps)


def _fit(call: Propagation, x: Tensor, of_type: Tensor, features: Tensor) -> bool:
    """Return whether all operands have the sizes that PyG's message needs."""
    layer = call.layer
    return (
        is_feature(call, of_type, 2)
        and is_feature(call, features, 2)
        and len(of_type) == len(features) == call.num_edges
        and features.size(1) == layer.edge_attr_emb.weight.size(1)
        and layer.att.weight.size(1) == 2 * x.size(1) + of_type.size(1) + layer.edge_attr_emb.weight.size(0)
        and layer.lin.weight.size(1) == x.size(1) + layer.edge_attr_emb.weight.size(0)
    )


def _is_finite(numbers: Tensor) -> bool:
    return bool(numbers.detach().sum().isfinite())


def _weighted(graph: Graph, end: End, rows: Tensor, alpha: Tensor, reduce: str) -> Tensor:
    """[num_dst, H, width]: the rows of sources or edges, reduced with the weights of each head.

    Args:
        graph: Over which edges.
        end: Whose rows they are.
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
