"""HGTConv: keys and values for each pair of relation and source, then one attention over all types.

PyG stacks the keys of all relations by heads, multiplies them type by type, transposes them back, and runs
its messages on the joint edges. Here one typed product computes the keys; its matrices hold narrow heads side
by side. The factor of a relation, ``p_rel``, is multiplied into the matrices of its keys, so it is not needed
for each edge. If PyG's own steps run, their joint edges are cached, and the products of its HeteroLinear are
joined once.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import gelu
from torch_geometric.nn import HGTConv
from torch_geometric.nn.dense import HeteroDictLinear, HeteroLinear, Linear
from torch_geometric.nn.parameter_dict import ParameterDict

from onehop import thresholds
from onehop.errors import ArgumentError
from onehop.graph.identity import remembered
from onehop.graph.lending import lend
from onehop.integrations import session
from onehop.integrations.pyg.associations.product import may_run_elsewhere
from onehop.integrations.pyg.call import Plan, begin
from onehop.integrations.pyg.conditions import has_hooks, reduction_of
from onehop.integrations.pyg.edges.kept import can_remember
from onehop.integrations.pyg.layer import is_left_out, with_own_forward
from onehop.integrations.pyg.leave import OUT_OF_RANGE, TOO_SMALL, Leave, are_features, is_plain, need
from onehop.ops.contexts import autocasts, context_reason, wraps
from onehop.ops.typed import side_by_side, typed_product
from onehop.ops.typed_attention import RowGroups, row_groups, typed_attention

_FORM = "dot-product attention over all types, fused"
_GROUPED = "dot-product attention over all types, by groups of relations"
# Narrow heads are multiplied together up to this width, because products of 16 and of 64 columns take equally
# long.
_WIDEST = 64
# With at least this many types, joined products of few rows are faster than PyG, which writes type by type:
# over 160 edges, HEATConv with 2 types ran at 0.89 times PyG's speed in training, and HGTConv with 20
# products at 1.19 times.
_MANY_TYPES = 8


def forward(theirs: Callable[..., Any], layer: Any, x_dict: Any, edge_index_dict: Any) -> dict[str, Tensor]:
    """Computes HGTConv's ``forward``.

    Args:
        theirs: PyG's method.
        layer: The layer.
        x_dict: Features by node type.
        edge_index_dict: Edges by edge type.

    Raises:
        Leave: PyG's code has to run; no module was called.
    """
    need(type(edge_index_dict) is dict)
    _check_edges(list(edge_index_dict.values()))
    _check_layer(layer)
    _check_features(layer, x_dict)
    numbers = _numbers(layer, x_dict, edge_index_dict)
    types = [name for name in layer.kqv_lin.lins if name in x_dict]
    groups = _groups_of(types, x_dict, edge_index_dict)
    heads, columns = layer.heads, layer.out_channels // layer.heads
    keys, queries, values = [], [], []
    for projected in layer.kqv_lin(x_dict).values():
        key, query, value = projected.chunk(3, 1)
        # The copies allow products in any library, and the joint tensor can be freed.
        keys.append(key.contiguous())
        values.append(value.contiguous())
        queries.append(query)
    # The multiplication by 1 keeps the gradients from being views of one tensor.
    factors = torch.cat([1 * layer.p_rel["__".join(layer.edge_types[number])] for number in numbers])
    of_keys = side_by_side(_matrices(layer.k_rel, heads, numbers) * factors[:, :, None, None], _WIDEST)
    of_values = side_by_side(_matrices(layer.v_rel, heads, numbers), _WIDEST)
    query, scale = torch.cat(queries).view(-1, heads, columns), 1 / math.sqrt(columns)
    sources, fastest = [types.index(relation[0]) for relation in edge_index_dict], may_run_elsewhere(query)

    def run() -> Tensor:
        pairs = (keys, of_keys), (values, of_values)
        return typed_attention(groups, sources, query, *pairs, scale, fastest).flatten(1)

    form = _FORM if len(groups.each) == 1 else _GROUPED
    task = Plan(form, "sum", groups.graph, query, run, "attention")
    begin(task, layer)
    parts = dict(zip(types, task.run().split([len(rows) for rows in queries]), strict=True))
    return _transformed(layer, x_dict, {name: parts[name] for name in types if name in layer.dst_node_types})


def _transformed(layer: Any, x_dict: dict[str, Tensor], parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """Runs the last steps of PyG's ``forward``: a linear step for each node type, and skip connections."""
    outs: dict[str, Tensor] = layer.out_lin({name: gelu(part) for name, part in parts.items()})
    outputs = {}
    for name in parts:
        out, x = outs[name], x_dict[name]
        if out.size(-1) == x.size(-1):
            alpha = layer.skip[name].sigmoid()
            out = alpha * out + (1 - alpha) * x
        outputs[name] = out
    return outputs


def _matrices(layer: Any, heads: int, numbers: list[int]) -> Tensor:
    """Return the matrices of some relations, [relations, H, D, D]; PyG stores them head by head."""
    weight: Tensor = layer.weight
    chosen = weight.view(heads, -1, *weight.shape[1:]).transpose(0, 1)
    return chosen if len(numbers) == chosen.size(0) else chosen[numbers]


def _runs_as_it_is(module: Any, kind: type) -> bool:
    """Return whether a module is exactly of this class, without hooks and without its own ``forward``."""
    return type(module) is kind and not has_hooks(module) and "forward" not in module.__dict__


def _check_layer(layer: Any) -> None:
    """Raises :class:`Leave` if this instance has changes to PyG's layer, such as hooks."""
    record = with_own_forward(layer, HGTConv, "_cat", "_construct_src_node_feat")
    need(record.rule is not None and reduction_of(layer) == ("sum", None) and layer.node_dim == 0)
    columns = layer.out_channels // layer.heads
    for linear in (layer.k_rel, layer.v_rel):
        need(_runs_as_it_is(linear, HeteroLinear) and linear.is_sorted and linear.bias is None)
        need(type(linear.weight) is Parameter)
        need(linear.weight.shape == (layer.heads * len(layer.edge_types), columns, columns))
    need(_runs_as_it_is(layer.kqv_lin, HeteroDictLinear))


def _check_features(layer: Any, x_dict: Any) -> None:
    """Raises :class:`Leave` unless all node types have features of one dtype that the linear steps take."""
    need(type(x_dict) is dict)
    factors = list(layer.p_rel.values())
    need(all(factor.shape == (1, layer.heads) for factor in factors))
    learned = [layer.k_rel.weight, layer.v_rel.weight, *factors]
    for name, x in x_dict.items():
        need(name in layer.kqv_lin.lins and are_features(x))
        step = layer.kqv_lin.lins[name]
        need(_runs_as_it_is(step, Linear) and step.weight.shape == (3 * layer.out_channels, x.size(1)))
        learned += [x, step.weight]
    need(are_features(layer.k_rel.weight, *learned, dims=3))


def _numbers(layer: Any, x_dict: dict[str, Tensor], edge_index_dict: Any) -> list[int]:
    """Return the number of each edge type in the layer's own order."""
    need(all(type(relation) is tuple and len(relation) == 3 for relation in edge_index_dict))
    numbers = [layer.edge_types_map.get(relation, -1) for relation in edge_index_dict]
    # PyG assumes that the relations' rows are in the layer's own order, even if the edges are not.
    need(numbers and numbers[0] >= 0 and all(a < b for a, b in itertools.pairwise(numbers)))
    need(all(relation[0] in x_dict and relation[-1] in x_dict for relation in edge_index_dict))
    return numbers


def _groups_of(types: list[str], x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> RowGroups:
    """Return the edges, cached or new: from a row for each relation and source to a row for each node."""
    edges = list(edge_index_dict.values())
    need(all(rows.is_cpu and len(rows) == 2 for rows in edges) and any(rows.numel() for rows in edges))
    nodes = [len(x_dict[name]) for name in types]
    first, num_dst = dict(zip(types, itertools.accumulate(nodes, initial=0), strict=False)), sum(nodes)
    most = max(thresholds.now.rows_a_node * num_dst, thresholds.now.block_edges)
    rows = tuple(len(x_dict[relation[0]]) for relation in edge_index_dict)
    starts = tuple(first[relation[-1]] for relation in edge_index_dict)
    try:
        return remembered(
            *edges,
            key=("rows of types", rows, starts, num_dst, most),
            make=lambda: row_groups(edges, rows, starts, num_dst, most),
        )
    except ArgumentError:
        raise Leave(OUT_OF_RANGE) from None


def _check_edges(edges: list[Any]) -> None:
    """Raises :class:`Leave` if edges cannot be recognised, or are so few that PyG's steps are as fast."""
    need(edges and all(can_remember(edge_index, None) and edge_index.dim() == 2 for edge_index in edges))
    need(sum(edge_index.numel() for edge_index in edges) >= 2 * thresholds.now.few_edges, TOO_SMALL)


# PyG's own steps


def joined(
    theirs: Callable[..., Any],
    edge_index_dict: dict[Any, Any],
    src_offset_dict: dict[Any, int],
    dst_offset_dict: dict[Any, int],
    edge_attr_dict: Any = None,
    num_nodes: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Runs PyG's ``construct_bipartite_edge_index``, and caches its results, because HGTConv always calls it.

    Args:
        theirs: PyG's function.
        edge_index_dict: Edges by edge type.
        src_offset_dict: The first row of the sources of each edge type.
        dst_offset_dict: The first row of each type of destinations.
        edge_attr_dict: Numbers of the edges of each type; None means that there are none.
        num_nodes: Number of rows.

    Returns:
        The joint edges and their numbers.

    Raises:
        Leave: PyG's code has to run.
    """
    types = list(src_offset_dict)
    edges = [edge_index_dict[relation] for relation in types]
    _check_edges(edges)
    places = tuple((relation, src_offset_dict[relation], dst_offset_dict[relation[-1]]) for relation in types)

    def make() -> Tensor:
        joint: Tensor = theirs(edge_index_dict, src_offset_dict, dst_offset_dict, None, num_nodes)[0]
        return joint

    joint_edges = remembered(*edges, key=("joined", places), make=make)
    if edge_attr_dict is None:
        return lend(joint_edges), None
    values = []
    for relation, of_type in zip(types, edges, strict=True):
        value = edge_attr_dict["__".join(relation) if isinstance(edge_attr_dict, ParameterDict) else relation]
        values.append(value if value.size(0) == of_type.size(1) else value.expand(of_type.size(1), -1))
    return lend(joint_edges), torch.cat(values)


def products(theirs: Callable[..., Any], layer: Any, x: Any, type_ptr: Any) -> Tensor | None:
    """Computes HeteroLinear's ``forward_naive``, which runs without pyg-lib, and joins the products once.

    PyG writes the product of each type into its rows of one tensor. The backward pass of each write copies
    the gradient of the whole tensor, so the cost grows with types times rows; here it grows with rows.

    Args:
        theirs: PyG's method.
        layer: The HeteroLinear.
        x: [N, in_channels], in the order of their types.
        type_ptr: [types + 1], the bounds of the rows of each type.

    Returns:
        [N, out_channels]; None if rows and types are so few that PyG's steps are as fast.

    Raises:
        Leave: PyG's code has to run.
    """
    weight = layer.weight
    if weight.size(0) < _MANY_TYPES and x.numel() < thresholds.now.few_work:
        return None
    need(session.now.pyg and not is_left_out(type(layer)) and context_reason() is None)
    need(is_plain(x) and is_plain(weight) and not wraps(x, weight, type_ptr) and not type_ptr.is_meta)
    need(x.layout is torch.strided and x.dtype is weight.dtype and not autocasts(x))
    need(x.shape[1:] == weight.shape[1:2] and weight.size(2) == layer.out_channels)
    starts = type_ptr.tolist()
    counts = [end - start for start, end in itertools.pairwise(starts)]
    # If types are not in order, the bounds do not ascend, and there are rows that PyG does not write.
    need(starts[0] == 0 and starts[-1] == x.size(0) and min(counts) >= 0 and len(counts) == weight.size(0))
    return typed_product(x, weight, counts, fastest=may_run_elsewhere(x))
