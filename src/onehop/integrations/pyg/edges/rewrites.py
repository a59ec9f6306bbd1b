"""Cached GCN normalisation and self loops, which PyG recomputes in every call.

For edges without weights, the cache holds the normalised edges, their weights, and the numbers ``deg **
-1/2`` whose products are the weights, so that the aggregation needs no weight for each edge. For edges with
weights or attributes, which may need gradients, it holds only the edges, so that their graph is found again.
Sparse matrices are cached with their values (:meth:`.Adjacency.derived`).
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.conv import gcn_conv

from onehop import thresholds
from onehop.integrations.pyg.edges import few
from onehop.integrations.pyg.edges.kept import Derived, can_remember, rewritten
from onehop.integrations.pyg.edges.matrix import adjacency_of
from onehop.integrations.pyg.edges.normalised import Unweighted, normalised
from onehop.integrations.pyg.edges.processes import parts_for
from onehop.integrations.pyg.edges.sparse_tensors import is_sparse_tensor
from onehop.integrations.pyg.known import GCN_NORM_MODULES, SELF_LOOP_NAMES
from onehop.integrations.pyg.leave import need
from onehop.integrations.rows import Row, replacing, replacing_in
from onehop.ops.contexts import context_reason

Function = Callable[..., Any]


def rows() -> list[Row]:
    """Return the rows for the functions in PyG's modules, and in torch_sparse if it is installed."""
    bodies: dict[str, Function] = {
        "gcn_norm": gcn_norm,
        "add_self_loops": partial(_loops, True),
        "remove_self_loops": partial(_loops, False),
    }
    names = (*((module, "gcn_norm") for module in GCN_NORM_MODULES), *SELF_LOOP_NAMES)
    table: list[Row] = []
    for name, body in bodies.items():
        modules = [importlib.import_module(module) for module, attribute in names if attribute == name]
        table += replacing_in(modules, name, body)
    if torch_geometric.typing.WITH_TORCH_SPARSE:
        module = torch_geometric.typing.torch_sparse
        table += [replacing(module, "set_diag", _set_diag), replacing(module, "fill_diag", _fill_diag)]
    return table


def normalisation() -> Function:
    """Return PyG's own ``gcn_norm``, even if it is patched."""
    function: Any = gcn_conv.gcn_norm
    return getattr(function, "__wrapped__", function)  # type: ignore[no-any-return]


def gcn_norm(
    theirs: Function,
    edge_index: Any,
    edge_weight: Any = None,
    num_nodes: Any = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: Any = None,
) -> Any:
    """Return the cached result of PyG's ``gcn_norm``; None if PyG's code has to run."""
    if can_remember(edge_index, num_nodes if add_self_loops and type(num_nodes) is int else 0):
        if edge_weight is None:
            key = Unweighted(num_nodes, improved, add_self_loops, flow, dtype)
            return without_weight(theirs, edge_index, key)
        is_vector = type(edge_weight) in (Tensor, Parameter) and edge_weight.shape == edge_index.shape[1:]
        need(is_vector and add_self_loops and num_nodes is not None and edge_index.dtype is torch.int64)
        edges, weight = _looped(edge_index, edge_weight, num_nodes, improved)
        return theirs(edges, weight, num_nodes, improved, False, flow, dtype)
    if type(edge_index) is Tensor and edge_index.layout is torch.strided:
        fill = 2.0 if improved else 1.0
        return few.normalised(edge_index, edge_weight, num_nodes, fill, add_self_loops, flow, dtype)
    parts = parts_for(edge_index)
    if parts is not None:
        return parts.normalised(edge_index, edge_weight, improved, add_self_loops, flow, dtype)
    adjacency = adjacency_of(edge_index)
    if adjacency is None or context_reason() is not None:
        return None
    key_of_matrix = ("gcn_norm", improved, add_self_loops, dtype)
    # PyG ignores the weight if the edges are a matrix.
    make = partial(theirs, edge_index, None, num_nodes, improved, add_self_loops, flow, dtype)
    if is_sparse_tensor(edge_index):
        return adjacency.derived(key_of_matrix, make)
    need(edge_index.shape == (num_nodes, num_nodes))
    return adjacency.derived(key_of_matrix, lambda: make()[0]), None


def without_weight(theirs: Function, edge_index: Tensor, key: Unweighted) -> tuple[Tensor, ...]:
    """Return the cached normalised edges and weights of edges without weights.

    Args:
        theirs: PyG's ``gcn_norm``.
        edge_index: [2, E].
        key: The other arguments.
    """

    def make() -> Derived:
        # If loops weigh 2, the weights are not products of one number for each end. PyG itself refuses
        # invalid arguments.
        fits = key.num_nodes is not None and not (key.improved and key.add_self_loops)
        if fits and edge_index.dtype is torch.int64:
            return normalised(edge_index, key)
        return Derived(theirs(edge_index, None, *key))

    return rewritten(edge_index, key, make)


def _looped(edge_index: Tensor, edge_weight: Tensor, num_nodes: int, improved: bool) -> tuple[Tensor, Tensor]:
    """Return cached edges with self loops, and their newly computed weights before normalisation.

    ``add_remaining_self_loops`` keeps the edges that are not loops, in their order, and appends a loop for
    every node. The loop has the weight of the node's last loop; if there is none, the weight is 2 if
    ``improved``, else 1.
    """

    def make() -> tuple[Tensor, Tensor]:
        keep = edge_index[0] != edge_index[1]
        loops = torch.arange(num_nodes, device=edge_index.device).view(1, -1).repeat(2, 1)
        return torch.cat([edge_index[:, keep], loops], dim=1), keep

    edges, keep = rewritten(edge_index, ("self loops", num_nodes), make)
    loop_weight = edge_weight.new_full((num_nodes,), 2.0 if improved else 1.0)
    is_loop = ~keep
    loop_weight[edge_index[0][is_loop]] = edge_weight[is_loop]
    return edges, torch.cat([edge_weight[keep], loop_weight])


def _loops(
    adds: bool,
    theirs: Function,
    edge_index: Any,
    edge_attr: Any = None,
    fill_value: Any = None,
    num_nodes: Any = None,
) -> Any:
    """Return the cached result of ``add_self_loops`` or ``remove_self_loops``; None if PyG has to run.

    PyG rewrites attributes of edges in every call.
    """
    # If num_nodes is missing, PyG counts the nodes; PyG also refuses arguments that remove_self_loops does
    # not have.
    if type(num_nodes) is not int if adds else not (num_nodes is None and fill_value is None):
        return None
    name, rest = ("add_self_loops", (fill_value, num_nodes)) if adds else ("remove_self_loops", ())
    # Layers that remove loops usually add others next, seldom more than there are edges.
    if can_remember(edge_index, num_nodes if adds else thresholds.now.few_edges // 2):
        attributes = None if edge_attr is None else theirs(edge_index, edge_attr, *rest)[1]
        (edges,) = rewritten(edge_index, (name, num_nodes), lambda: theirs(edge_index, None, *rest)[:1])
        return edges, attributes
    if type(edge_index) is Tensor and edge_index.layout is torch.strided:
        if edge_attr is not None:
            return None
        looped = few.with_loops(edge_index, num_nodes) if adds else few.without_loops(edge_index)
        return None if looped is None else (looped, None)
    parts = parts_for(edge_index)
    if parts is not None:
        return parts.rewritten_loops(name, edge_index, edge_attr, fill_value)
    adjacency = None if is_sparse_tensor(edge_index) else adjacency_of(edge_index)
    # A tensor as fill value cannot be part of a key.
    is_key = isinstance(fill_value, int | float | str | None)
    if adjacency is None or edge_attr is not None or not is_key or context_reason() is not None:
        return None
    return adjacency.derived((name, *rest), lambda: theirs(edge_index, None, *rest)[0]), None


def _set_diag(theirs: Function, src: Any, values: Any = None, k: Any = 0) -> Any:
    """Return the cached result of ``torch_sparse.set_diag`` with values of 1; None if its code has to run."""
    if values is not None:
        return None
    return _with_diagonal(src, ("set_diag", k), lambda: theirs(src, None, k))


def _fill_diag(theirs: Function, src: Any, fill_value: Any, k: Any = 0) -> Any:
    """Return the cached result of ``torch_sparse.fill_diag``; None if its code has to run."""
    return _with_diagonal(src, ("fill_diag", k, fill_value), lambda: theirs(src, fill_value, k))


def _with_diagonal(src: Any, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    # Numbers of other types cannot be parts of a key.
    need(type(key[1]) is int and type(key[-1]) in (int, float))
    adjacency = adjacency_of(src) if is_sparse_tensor(src) else None
    return None if adjacency is None or context_reason() is not None else adjacency.derived(key, make)
