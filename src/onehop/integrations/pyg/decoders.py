"""PyG's edge scores that are dot products; they run as ``onehop.sddmm``.

In ``InnerProductDecoder``, which ``GAE`` and its subclasses use, PyG copies the rows of both ends of every
edge, and adds the gradients of the copies to the nodes. Here one operator computes the products over the
graph of the edges. Negative edges are new in every epoch, but making their graph takes a small part of the
time of the copies.

``DistMult`` and ``ComplEx`` score one head and one relation against many tails in the models' ``test``. PyG
copies the head, the relation and the tail for every score. Here the head and the relation are combined into
one row, the destination of all edges.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Embedding
from torch_geometric.nn.kge import ComplEx, DistMult
from torch_geometric.nn.models.autoencoder import InnerProductDecoder

from onehop import thresholds
from onehop.compiler.modules import modules_reason
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.integrations.pyg.edges.kept import graph_of
from onehop.integrations.pyg.edges.sizes import is_too_small
from onehop.integrations.pyg.functions import applies
from onehop.integrations.pyg.leave import are_dense
from onehop.integrations.rows import Row, replacing
from onehop.ops import sddmm

# Making a graph, and gradients, take a pass over all nodes. With more nodes per edge than this, that costs as
# much as it saves: 10,000 new edges of 100,000 nodes with width 16 took 1.5 times as long as in PyG without a
# backward pass, and 0.65 times as long with one.
_NODES_AN_EDGE = 8


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return [
        replacing(InnerProductDecoder, "forward", inner_product, counted_as="InnerProductDecoder"),
        replacing(DistMult, "forward", dist_mult, counted_as="DistMult"),
        replacing(ComplEx, "forward", compl_ex, counted_as="ComplEx"),
    ]


def inner_product(_: Any, decoder: Any, z: Any, edge_index: Any, sigmoid: Any = True) -> Tensor | None:
    """Computes ``InnerProductDecoder.forward``; None if PyG's code has to run.

    Args:
        decoder: The decoder, which has no parameters.
        z: [N, F].
        edge_index: [2, E].
        sigmoid: Whether to return probabilities instead of products.
    """
    if is_too_small(edge_index, z) or not applies(z, edge_index) or z.dim() != 2:
        return None
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.size(1) * _NODES_AN_EDGE < len(z):
        return None
    graph = graph_of(edge_index, len(z), len(z), forwards=True)
    if graph is None:
        return None
    products: Tensor = sddmm(graph, z, z)
    return products.sigmoid() if sigmoid else products


def dist_mult(_: Any, model: Any, head_index: Any, rel_type: Any, tail_index: Any) -> Tensor | None:
    """Computes ``DistMult.forward`` for one head and one relation; None if PyG's code has to run.

    Args:
        model: The model.
        head_index: [E], expanded from one number.
        rel_type: [E], expanded from one number.
        tail_index: [E].
    """
    nodes, relations = model.node_emb, model.rel_emb
    if not _has_one_row((nodes, relations), head_index, rel_type, tail_index):
        return None
    row = nodes(head_index[:1]) * relations(rel_type[:1])
    return _scores(tail_index, (row, nodes.weight))


def compl_ex(_: Any, model: Any, head_index: Any, rel_type: Any, tail_index: Any) -> Tensor | None:
    """Computes ``ComplEx.forward`` for one head and one relation; None if PyG's code has to run.

    The arguments are those of :func:`dist_mult`.
    """
    nodes, relations = (model.node_emb, model.node_emb_im), (model.rel_emb, model.rel_emb_im)
    if not _has_one_row((*nodes, *relations), head_index, rel_type, tail_index):
        return None
    head, head_im = (embedding(head_index[:1]) for embedding in nodes)
    rel, rel_im = (embedding(rel_type[:1]) for embedding in relations)
    real, imaginary = head * rel - head_im * rel_im, head_im * rel + head * rel_im
    return _scores(tail_index, (real, nodes[0].weight), (imaginary, nodes[1].weight))


def _has_one_row(embeddings: Sequence[Any], head_index: Any, rel_type: Any, tail_index: Any) -> bool:
    """Return whether one head and one relation are scored against enough tails, with plain embeddings."""
    return (
        all(map(_is_plain, embeddings))
        and applies(embeddings[0].weight)
        and are_dense(*(module.weight for module in embeddings), dtype=embeddings[0].weight.dtype, dims=2)
        and are_dense(head_index, rel_type, tail_index, dtype=torch.int64, dims=1)
        and head_index.shape == rel_type.shape == tail_index.shape
        and head_index.stride() == rel_type.stride() == (0,)
        and tail_index.numel() * embeddings[0].embedding_dim >= max(thresholds.now.few_work, 1)
        and modules_reason(embeddings) is None
    )


def _is_plain(module: Any) -> bool:
    """Return whether a module only gathers rows of its weight, with dense gradients."""
    return (
        type(module) is Embedding
        and module.padding_idx is None
        and module.max_norm is None
        and not module.scale_grad_by_freq
        and not (module.sparse and torch.is_grad_enabled())
    )


def _scores(tails: Tensor, *pairs: tuple[Tensor, Tensor]) -> Tensor | None:
    """Return scores, [E]: the sum over pairs of a row, [1, F], times the rows of the tails in [N, F]."""
    bounds = torch.tensor([0, tails.numel()], device="cpu")
    try:
        graph = Graph.from_csr(bounds, tails, len(pairs[0][1]))
    except ArgumentError:
        return None
    scores = [sddmm(graph, row, rows) for row, rows in pairs]
    return scores[0] if len(scores) == 1 else scores[0] + scores[1]
