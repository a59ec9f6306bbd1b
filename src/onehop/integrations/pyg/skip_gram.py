"""The loss of ``Node2Vec`` and ``MetaPath2Vec``: dot products of walks' first nodes with the other nodes.

PyG copies the row of every node of every walk from the embedding, four times, multiplies the copies, and adds
their gradients to the embedding. Here the rows of the nodes that occur are copied once, and an operator
computes the products over a graph with an edge for each pair. So no tensor is as large as the walks times the
width.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.models import MetaPath2Vec, Node2Vec, metapath2vec

from onehop import thresholds
from onehop.compiler.modules import modules_reason
from onehop.graph import Graph
from onehop.integrations.pyg.functions import applies
from onehop.integrations.pyg.leave import are_dense
from onehop.integrations.rows import Row, replacing
from onehop.ops import sddmm


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return [
        replacing(Node2Vec, "loss", loss, counted_as="Node2Vec"),
        replacing(MetaPath2Vec, "loss", loss, counted_as="MetaPath2Vec"),
    ]


def loss(_: Any, model: Any, pos_rw: Any, neg_rw: Any) -> Tensor | None:
    """Computes the loss of walks; None if PyG's code has to run.

    Args:
        model: The model.
        pos_rw: [P, context], int64: parts of walks along edges.
        neg_rw: [n, context], int64: parts of walks with random nodes.
    """
    embedding = model.embedding
    if not (_takes_rows(embedding) and are_dense(pos_rw, neg_rw, dtype=torch.int64, dims=2)):
        return None
    walks, weight = (pos_rw, neg_rw), embedding.weight
    pairs = sum(part.size(0) * (part.size(1) - 1) for part in walks)
    if pairs * weight.size(1) < max(thresholds.now.few_work, 1) or not applies(weight):
        return None
    met = torch.zeros(len(weight), dtype=torch.bool, device="cpu")
    if any(part.numel() == 0 or int(part.min()) < 0 or int(part.max()) >= len(met) for part in walks):
        return None
    for part in walks:
        met[part.reshape(-1)] = True
    nodes = met.nonzero()[:, 0]
    places = torch.empty(len(met), dtype=torch.int64, device="cpu")
    places[nodes] = torch.arange(nodes.numel(), device="cpu")
    x = embedding(nodes)
    positive, negative = (_scores(places[part], x).sigmoid() for part in walks)
    small = getattr(model, "EPS", metapath2vec.EPS)
    return -torch.log(positive + small).mean() - torch.log(1 - negative + small).mean()


def _takes_rows(module: Any) -> bool:
    """Return whether a module only gathers rows of its weight, and passes their gradients on unchanged."""
    return (
        type(module) is torch.nn.Embedding
        and module.max_norm is None
        and not module.scale_grad_by_freq
        and modules_reason([module]) is None
    )


def _scores(walks: Tensor, x: Tensor) -> Tensor:
    """Return the dot products of each walk's first row with its other rows, [walks * (context - 1)]."""
    start, rest = walks[:, :1].expand(-1, walks.size(1) - 1), walks[:, 1:]
    ends = torch.stack([rest.reshape(-1), start.reshape(-1)])
    return sddmm(Graph.from_edge_index(ends, num_nodes=len(x)), x, x)
