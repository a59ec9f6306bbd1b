"""HGTConv: keys and values for each pair of a relation and a source, then one attention over all types.

PyG stacks the keys of all relations by heads, multiplies them type by type, transposes them back, and runs
its messages on the joint edges. Here they are a typed product, whose matrices hold the narrow heads side by
side. The factor of a relation, ``p_rel``, is multiplied into the matrices of its keys, so no edge needs it.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import gelu
from torch_geometric.nn import HGTConv
from torch_geometric.nn.dense import HeteroDictLinear, HeteroLinear, Linear
from torch_geometric.utils.hetero import construct_bipartite_edge_index

from onehop import thresholds
from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.pyg.associations.product import may_run_elsewhere
from onehop.integrations.pyg.call import Plan, begin
from onehop.integrations.pyg.edges.graphs import graph_of
from onehop.integrations.pyg.edges.typed_edges import joined
from onehop.integrations.pyg.hgt_groups import GroupedAttention, Groups, groups_of
from onehop.integrations.pyg.layer import has_hooks, layer_reason, record_of, reduction_of
from onehop.integrations.pyg.leave import are_features
from onehop.ops import attention
from onehop.ops.contexts import context_reason
from onehop.ops.recomputed import recomputed
from onehop.ops.typed import side_by_side, typed_product

_FORM = "dot-product attention over all types, fused"
_GROUPED = "dot-product attention over all types, by groups of relations"
# Narrow heads are multiplied together up to this width: products of 16 columns take as long as those of 64.
_WIDEST = 64


class _Relations(NamedTuple):
    """The relations of one call, and where the rows of node types are.

    Attributes:
        graph: The joint edges: from a row for each relation and source to a row for each node.
        groups: The relations in groups, of no more rows than there may be at once.
        types: Node types, in the order of their rows.
        sources: The place among these of each relation's sources.
        numbers: The number of each relation among those of the layer.
    """

    graph: Graph
    groups: Groups
    types: list[str]
    sources: tuple[int, ...]
    numbers: list[int]


def forward(
    theirs: Callable[..., Any], layer: Any, x_dict: Any, edge_index_dict: Any
) -> dict[str, Tensor] | None:
    """Computes HGTConv's ``forward``; None, before any module was called, if PyG's code has to run.

    Args:
        theirs: PyG's method.
        layer: The layer.
        x_dict: Features by type of node.
        edge_index_dict: Edges by type.
    """
    if context_reason() is not None or not _is_plain(layer) or not _are_features(layer, x_dict):
        return None
    relations = _relations_of(layer, x_dict, edge_index_dict)
    if relations is None:
        return None
    graph, groups, types, sources, numbers = relations
    heads, columns = layer.heads, layer.out_channels // layer.heads
    keys, queries, values = [], [], []
    for made in layer.kqv_lin(x_dict).values():
        key, query, value = made.chunk(3, 1)
        # Copies, so that products run in any library, and what they are copied from can be freed.
        keys.append(key.contiguous())
        values.append(value.contiguous())
        queries.append(query)
    # Each times 1, so that their gradients are no views of one tensor.
    factors = torch.cat([1 * layer.p_rel["__".join(layer.edge_types[number])] for number in numbers])
    of_keys = side_by_side(_matrices(layer.k_rel, heads, numbers) * factors[:, :, None, None], _WIDEST)
    of_values = side_by_side(_matrices(layer.v_rel, heads, numbers), _WIDEST)
    query, scale = torch.cat(queries).view(-1, heads, columns), 1 / math.sqrt(columns)
    fastest = may_run_elsewhere(query)

    def run() -> Tensor:
        if len(groups.each) > 1:
            pieces = GroupedAttention(graph, groups, sources, scale, fastest)
            out: Tensor = recomputed(pieces, query, of_keys, of_values, *keys, *values)
            return out.flatten(1)
        key, value = (
            typed_product([ends[at] for at in sources], matrices, fastest=fastest).view(-1, heads, columns)
            for ends, matrices in ((keys, of_keys), (values, of_values))
        )
        out = attention(graph, query, key, value, scale)
        return out.flatten(1)

    task = Plan(_FORM if len(groups.each) == 1 else _GROUPED, "sum", graph, query, run, "attention")
    begin(task, layer)
    parts = dict(zip(types, task.run().split([len(each) for each in queries]), strict=True))
    return _transformed(layer, x_dict, {name: parts[name] for name in types if name in layer.dst_node_types})


def _transformed(layer: Any, x_dict: dict[str, Tensor], parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """The last steps of PyG's ``forward``: a linear step of each node type, and what skips the layer."""
    outs: dict[str, Tensor] = layer.out_lin({name: gelu(part) for name, part in parts.items()})
    found = {}
    for name in parts:
        out, x = outs[name], x_dict[name]
        if out.size(-1) == x.size(-1):
            alpha = layer.skip[name].sigmoid()
            out = alpha * out + (1 - alpha) * x
        found[name] = out
    return found


def _matrices(layer: Any, heads: int, numbers: list[int]) -> Tensor:
    """[relations, H, D, D]: the matrices of some relations, which PyG numbers head by head."""
    weight: Tensor = layer.weight
    chosen = weight.view(heads, -1, *weight.shape[1:]).transpose(0, 1)
    return chosen if len(numbers) == chosen.size(0) else chosen[numbers]


def _is_plain(layer: Any) -> bool:
    """Return whether the layer is PyG's, as it is set up now."""
    kind = type(layer)
    record = record_of(layer)
    if (
        record is None
        or record.reason is not None
        or kind._cat is not HGTConv._cat
        or kind._construct_src_node_feat is not HGTConv._construct_src_node_feat
        or layer_reason(layer, record.fuses) is not None
        or reduction_of(layer) != ("sum", None)
        or layer.flow != "source_to_target"
        or layer.node_dim != 0
        or session.now.backend
        or session.now.machine
    ):
        return False
    columns = layer.out_channels // layer.heads
    shape = (layer.heads * len(layer.edge_types), columns, columns)
    return type(layer.kqv_lin) is HeteroDictLinear and all(
        type(each) is HeteroLinear
        and not has_hooks(each)
        and "forward" not in each.__dict__
        and each.is_sorted
        and each.bias is None
        and type(each.weight) is Parameter
        and each.weight.shape == shape
        for each in (layer.k_rel, layer.v_rel)
    )


def _are_features(layer: Any, x_dict: Any) -> bool:
    """Return whether every node type has features that the layer's own linear step takes, of one dtype."""
    steps = layer.kqv_lin
    if type(x_dict) is not dict or has_hooks(steps) or "forward" in steps.__dict__:
        return False
    factors = list(layer.p_rel.values())
    if any(each.shape != (1, layer.heads) for each in factors):
        return False
    learned = [layer.k_rel.weight, layer.v_rel.weight, *factors]
    for name, x in x_dict.items():
        if name not in steps.lins or not are_features(x):
            return False
        step = steps.lins[name]
        if type(step) is not Linear or has_hooks(step) or "forward" in step.__dict__:
            return False
        if step.weight.shape != (3 * layer.out_channels, x.size(1)):
            return False
        learned += [x, step.weight]
    return are_features(layer.k_rel.weight, *learned, dims=3)


def _relations_of(layer: Any, x_dict: dict[str, Tensor], edge_index_dict: Any) -> _Relations | None:
    """The relations of these edges; None if PyG is to report what is wrong with them, or if they are few."""
    if type(edge_index_dict) is not dict or not all(
        type(each) is tuple and len(each) == 3 and type(edges) is Tensor
        for each, edges in edge_index_dict.items()
    ):
        return None
    types = [name for name in layer.kqv_lin.lins if name in x_dict]
    numbers = [layer.edge_types_map.get(each, -1) for each in edge_index_dict]
    # PyG takes the relations' rows to be in the layer's own order, whatever order they come in.
    if not numbers or numbers[0] < 0 or any(b <= a for a, b in itertools.pairwise(numbers)):
        return None
    if any(each[0] not in x_dict or each[-1] not in x_dict for each in edge_index_dict):
        return None
    num_src = num_dst = 0
    source_starts, target_starts = {}, {}
    for name in types:
        target_starts[name] = num_dst
        num_dst += x_dict[name].size(0)
    for each in edge_index_dict:
        source_starts[each] = num_src
        num_src += x_dict[each[0]].size(0)
    found = joined(
        construct_bipartite_edge_index, edge_index_dict, source_starts, target_starts, num_nodes=num_src
    )
    if found is None:
        return None
    graph = graph_of(found[0], num_src, num_dst, forwards=True)
    if graph is None or graph.num_edges == 0:
        return None
    most = max(thresholds.now.rows_a_node * num_dst, thresholds.now.block_edges)
    rows = [x_dict[each[0]].size(0) for each in edge_index_dict]
    groups = groups_of(graph, rows, [each.size(1) for each in edge_index_dict.values()], most)
    return _Relations(graph, groups, types, tuple(types.index(each[0]) for each in edge_index_dict), numbers)
