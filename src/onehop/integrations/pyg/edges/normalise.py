"""GCN's normalisation, remembered: PyG computes it on every call, with the same result.

Without edge weights both the edges with self loops and the weights are kept, and with them the numbers
``deg ** -1/2`` whose products the weights are, so that the aggregation needs no weight for each edge.
With edge weights, which may need gradients, the edges alone are kept and the weights are computed every time.
Normalised sparse matrices are kept by :mod:`.derived_matrices`, those of torch_sparse by
:mod:`.derived_tensors`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn.conv import gcn_conv

from onehop.integrations.pyg.edges.derived import Derived, can_remember, rewritten
from onehop.integrations.pyg.edges.derived_matrices import derived
from onehop.integrations.pyg.edges.derived_tensors import derived_tensor
from onehop.integrations.pyg.edges.graphs import note_scales
from onehop.integrations.pyg.edges.matrices import is_matrix
from onehop.integrations.pyg.edges.processes import parts_for
from onehop.integrations.pyg.edges.sparse_tensors import is_sparse_tensor
from onehop.integrations.rows import stand_in
from onehop.ops import contexts
from onehop.ops.contexts import context_reason

Normalise = Callable[..., Any]


class Unweighted(NamedTuple):
    """The key of the normalised edges, and their weights, of edges without weight."""

    num_nodes: int | None
    improved: bool
    add_self_loops: bool
    flow: str
    dtype: torch.dtype | None


def normalisation() -> Normalise:
    """PyG's own ``gcn_norm``, whether or not it is patched."""
    function: Any = gcn_conv.gcn_norm
    return getattr(function, "__wrapped__", function)  # type: ignore[no-any-return]


def remembering(theirs: Normalise) -> Normalise:
    """PyG's ``gcn_norm`` with a memory."""
    ours = _normalise

    def gcn_norm(*args, **kwargs):  # type: ignore[no-untyped-def]
        out = ours(theirs, *args, **kwargs)
        return theirs(*args, **kwargs) if out is None else out

    return stand_in(theirs, gcn_norm)


def _normalise(
    theirs: Normalise,
    edge_index: Any,
    edge_weight: Any = None,
    num_nodes: Any = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: Any = None,
) -> Any:
    """The normalised edges; None if PyG's code has to run."""
    if torch.compiler.is_compiling() or contexts.as_program:
        return None
    if can_remember(edge_index):
        if edge_weight is None:
            key = Unweighted(num_nodes, improved, add_self_loops, flow, dtype)
            return without_weight(theirs, edge_index, key)
        if (
            not add_self_loops
            or not _is_vector(edge_weight, edge_index)
            or num_nodes is None
            or edge_index.dtype is not torch.int64
        ):
            return None
        edges, weight = _looped(edge_index, edge_weight, num_nodes, improved)
        return theirs(edges, weight, num_nodes, improved, False, flow, dtype)
    if type(edge_index) is not Tensor:
        parts = parts_for(edge_index)
        if parts is not None:
            return parts.normalised(edge_index, edge_weight, improved, add_self_loops, flow, dtype)
        if is_sparse_tensor(edge_index) and context_reason() is None:
            # PyG ignores the other arguments then.
            return derived_tensor(
                edge_index,
                ("gcn_norm", improved, add_self_loops, dtype),
                lambda: theirs(edge_index, None, num_nodes, improved, add_self_loops, flow, dtype),
            )
        return None
    if is_matrix(edge_index) and edge_index.shape == (num_nodes, num_nodes) and context_reason() is None:
        made = derived(
            edge_index,
            ("gcn_norm", improved, add_self_loops),
            lambda: theirs(edge_index, None, num_nodes, improved, add_self_loops)[0],
        )
        return None if made is None else (made, None)
    return None


def without_weight(theirs: Normalise, edge_index: Tensor, key: Unweighted) -> tuple[Tensor, ...]:
    """The normalised edges and their weights, of edges without weight, from memory.

    Args:
        theirs: PyG's ``gcn_norm``.
        edge_index: [2, E].
        key: The other arguments.
    """
    return rewritten(edge_index, key, lambda: _normalised(theirs, edge_index, key))


def _normalised(theirs: Normalise, edge_index: Tensor, key: Unweighted) -> Derived:
    made = _computed(edge_index, key)
    if made is None:
        return Derived(theirs(edge_index, None, *key))
    edges, weight, scale = made
    note_scales(weight, edges, scale)
    return Derived((edges, weight), scale)


def _computed(edge_index: Tensor, key: Unweighted) -> tuple[Tensor, Tensor, Tensor] | None:
    """The normalised edges, their weights, and [N]: deg ** -1/2; None where weights are no such products.

    The formula is PyG's, for edges of weight 1, in its order, so that the weights agree bit for bit.
    """
    nodes = key.num_nodes
    dtype = torch.get_default_dtype() if key.dtype is None else key.dtype
    if nodes is None or (key.improved and key.add_self_loops) or edge_index.dtype is not torch.int64:
        return None
    edges = edge_index
    if key.add_self_loops:
        # A loop for every node comes last and replaces the loops that are there.
        keep = edge_index[0] != edge_index[1]
        loops = torch.arange(nodes, device=edge_index.device).expand(2, -1)
        edges = torch.cat([edge_index if bool(keep.all()) else edge_index[:, keep], loops], dim=1)
    source, target = edges[0], edges[1]
    counted = target if key.flow == "source_to_target" else source
    ones = torch.ones(edges.size(1), dtype=dtype, device=edges.device)
    degree = ones.new_zeros(nodes).scatter_add_(0, counted, ones)
    scale = degree.pow_(-0.5).masked_fill_(degree == float("inf"), 0)
    return edges, scale[source] * scale[target], scale


def _is_vector(edge_weight: Any, edge_index: Tensor) -> bool:
    return type(edge_weight) in (Tensor, torch.nn.Parameter) and edge_weight.shape == edge_index.shape[1:]


def _looped(edge_index: Tensor, edge_weight: Tensor, num_nodes: int, improved: bool) -> tuple[Tensor, Tensor]:
    """The edges with self loops, from memory, and their weights before normalisation, made anew.

    ``add_remaining_self_loops`` keeps the edges that are no loops, in their order, and appends a loop for
    every node: it weighs what the node's last loop weighed before, or, without one, 2 if ``improved``, else
    1.
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
