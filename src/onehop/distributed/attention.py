"""Attention over several processes: rows without halo sources first, then the rest."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.distributed.aggregate import split_by_row
from onehop.distributed.checks import check_part, check_rows, check_sources
from onehop.distributed.graph import DistributedGraph
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops import attention as attention_here, gat as gat_here, gatv2 as gatv2_here
from onehop.ops.attention_checks import Edge, check_edge, check_tensor
from onehop.reference.dropout import dropout_mask


def gat(
    graph: DistributedGraph,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge_score: Tensor | None = None,
    edge_mask: Tensor | None = None,
    seed: int | None = None,
) -> Tensor:
    """Compute :func:`onehop.gat` over the whole graph; each process computes its own rows.

    Args:
        graph: This process's part.
        x: [m, H, D], a row for each of ``graph.owned_sources``. Differentiable.
        score_src: [m, H], of the dtype of x. Differentiable.
        score_dst: [n, H]. Differentiable.
        negative_slope: Slope of the leaky relu.
        dropout: See :func:`onehop.gat`.
        edge_score: [e, H], for each of ``graph.owned_edges``; None means 0. Differentiable.
        edge_mask: [e, H], for each of ``graph.owned_edges``, multiplies the softmaxed weights; None means 1.
        seed: Seed of the dropout. With the same seed on every rank, the mask equals the mask of
            :func:`onehop.gat` in one process. None draws a different seed on each rank.

    Returns:
        [n, H, D].

    Raises:
        ArgumentError: A shape or dtype does not fit.
        CommunicationError: Another process ended or did not answer.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop import distributed
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = distributed.DistributedGraph.from_edge_index(torch.tensor([[0, 1], [2, 2]]))  # 0->2, 1->2
        >>> x = torch.tensor([2.0, 4.0, 9.0])[graph.owned_sources].reshape(-1, 1, 1)  # one head of one column
        >>> scores = torch.zeros(3, 1)[graph.owned_nodes]
        >>> distributed.gat(graph, x, scores, scores).flatten()  # node 2: the mean of 2 and 4
        tensor([0., 0., 3.])
        >>> dist.destroy_process_group()
    """
    check_part(graph)
    check_sources("x", x, graph)
    heads = _heads("x", x)
    check_sources("score_src", score_src, graph)
    check_rows("score_dst", score_dst, graph)
    for name, score in (("score_src", score_src), ("score_dst", score_dst)):
        if score.shape[1:] != (heads,) or score.dtype != x.dtype:
            raise ArgumentError(
                f"{name}: expected {x.dtype} of shape [n, {heads}], got {score.dtype} {list(score.shape)}."
            )
    if edge_score is not None:
        check_tensor("edge_score", edge_score, (graph.num_edges, heads), "[e, H]", x)
    of_edges = split_by_row(graph.splits.by_row(graph.loops), edge_score)
    mask = _mask(graph, heads, dropout, edge_mask, seed, x.dtype)
    run = partial(gat_here, negative_slope=negative_slope)
    return _by_rows(graph, run, (x, score_src), score_dst, mask, edge_score=of_edges)


def gatv2(
    graph: DistributedGraph,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    edge_mask: Tensor | None = None,
    seed: int | None = None,
) -> Tensor:
    """Compute :func:`onehop.gatv2` over the whole graph; each process computes its own rows.

    Args:
        graph: This process's part.
        x_src: [m, H, D], a row for each of ``graph.owned_sources``. Differentiable.
        x_dst: [n, H, D], for each of ``graph.owned_nodes``. Differentiable.
        att: [H, D], the same on every rank. Differentiable: each rank gets the gradient from its own rows.
        negative_slope: Slope of the leaky relu.
        dropout: See :func:`onehop.gatv2`.
        edge: Features of ``graph.owned_edges``: [e, H, D]; or a pair of features [e, K] and weight [H * D,
            K], which is the same on every rank and gets the gradient from the rank's own edges. None means 0.
            Differentiable.
        edge_mask: See :func:`gat`.
        seed: See :func:`gat`.

    Returns:
        [n, H, D].

    Raises:
        ArgumentError: A shape or dtype does not fit.
        CommunicationError: Another process ended or did not answer.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop import distributed
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = distributed.DistributedGraph.from_edge_index(torch.tensor([[0, 1], [2, 2]]))  # 0->2, 1->2
        >>> x = torch.tensor([[2.0, 4.0], [4.0, 2.0], [9.0, 9.0]])[graph.owned_nodes].unsqueeze(1)
        >>> distributed.gatv2(graph, x, x, torch.ones(1, 2))[2]  # both edges have the same score
        tensor([[3., 3.]])
        >>> dist.destroy_process_group()
    """
    check_part(graph)
    check_sources("x_src", x_src, graph)
    check_rows("x_dst", x_dst, graph)
    heads = _heads("x_src", x_src)
    _heads("x_dst", x_dst, heads)
    of_edges = _edges_by_row(graph, edge, x_src)
    mask = _mask(graph, heads, dropout, edge_mask, seed, x_src.dtype)
    run = partial(gatv2_here, att=att, negative_slope=negative_slope)
    return _by_rows(graph, run, (x_src,), x_dst, mask, edge=of_edges)


def attention(
    graph: DistributedGraph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    edge_mask: Tensor | None = None,
    seed: int | None = None,
) -> Tensor:
    """Compute :func:`onehop.attention` over the whole graph; each process computes its own rows.

    Args:
        graph: This process's part.
        query: [n, H, D], a row for each of ``graph.owned_nodes``. Differentiable.
        key: [m, H, D], a row for each of ``graph.owned_sources``. Differentiable.
        value: [m, H, V], of the dtype of the key; V must equal D if edges have features. Differentiable.
        scale: Factor of the scores; None means 1 / sqrt(D).
        dropout: See :func:`onehop.attention`.
        edge: See :func:`gatv2`.
        edge_mask: See :func:`gat`.
        seed: See :func:`gat`.

    Returns:
        [n, H, V].

    Raises:
        ArgumentError: A shape or dtype does not fit.
        CommunicationError: Another process ended or did not answer.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop import distributed
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = distributed.DistributedGraph.from_edge_index(torch.tensor([[0, 1], [2, 2]]))  # 0->2, 1->2
        >>> value = torch.tensor([2.0, 4.0, 9.0])[graph.owned_sources].reshape(-1, 1, 1)
        >>> query = key = torch.ones(3, 1, 1)[graph.owned_nodes]
        >>> distributed.attention(graph, query, key, value).flatten()  # node 2: the mean of 2 and 4
        tensor([0., 0., 3.])
        >>> dist.destroy_process_group()
    """
    check_part(graph)
    check_rows("query", query, graph)
    check_sources("key", key, graph)
    check_sources("value", value, graph)
    heads = _heads("query", query)
    _heads("key", key, heads)
    _heads("value", value, heads)
    if key.dtype != value.dtype:
        raise ArgumentError(f"value: expected the key's dtype {key.dtype}, got {value.dtype}; convert it.")
    of_edges = _edges_by_row(graph, edge, key)
    mask = _mask(graph, heads, dropout, edge_mask, seed, query.dtype)

    def run(part: Graph, key: Tensor, value: Tensor, query: Tensor, **edges: Any) -> Tensor:
        out: Tensor = attention_here(part, query, key, value, scale, **edges)
        return out

    return _by_rows(graph, run, (key, value), query, mask, edge=of_edges)


def _by_rows(
    graph: DistributedGraph,
    run: Callable[..., Tensor],
    sources: Sequence[Tensor],
    targets: Tensor,
    mask: Tensor | None,
    **edges: tuple[Edge | None, Edge | None],
) -> Tensor:
    """Compute the rows without halo sources while the halo rows are in transit, and then the other rows.

    Args:
        graph: This process's part.
        run: Attention in one process, called with a graph, ``sources``, ``targets`` and the edges' operands
            by name.
        sources: [m, ...] for each operand of sources. One message per node has its rows of all operands.
        targets: [n, ...].
        mask: [e, H], or None.
        **edges: By name, the edges' operand for each of the two graphs.
    """
    split, inner = graph.splits.by_row(graph.loops), graph.part.inner_rows
    edges["edge_mask"] = split_by_row(split, mask)
    first, second = ({name: halves[at] for name, halves in edges.items()} for at in (0, 1))
    rows = [each.flatten(1) for each in sources]
    pending = graph.exchange.begin(rows[0] if len(rows) == 1 else torch.cat(rows, 1))
    near = run(split.first, *sources, targets[:inner], **first)
    halo = pending.end().split([each.size(1) for each in rows], 1)
    ends = zip(sources, halo, strict=True)
    everywhere = [torch.cat([here, there.unflatten(1, tuple(here.shape[1:]))]) for here, there in ends]
    return torch.cat([near, run(split.second, *everywhere, targets[inner:], **second)])


def _heads(name: str, tensor: Tensor, heads: int | None = None) -> int:
    """Return the number of heads; raise an error if another operand has a different number."""
    if tensor.dim() != 3 or heads not in (None, tensor.size(1)):
        raise ArgumentError(
            f"{name}: expected [n, H, D] with the same H in all operands, got {list(tensor.shape)}."
        )
    return tensor.size(1)


def _edges_by_row(
    graph: DistributedGraph, edge: Edge | None, like: Tensor
) -> tuple[Edge | None, Edge | None]:
    """Check the features of edges and split them between the two graphs that :meth:`Splits.by_row` made."""
    if edge is None:
        return None, None
    features, weight = check_edge(edge, graph.num_edges, like.size(1), like.size(2), like)
    first, second = split_by_row(graph.splits.by_row(graph.loops), features)
    if weight is None:
        return first, second
    assert first is not None
    assert second is not None
    return (first, weight), (second, weight)


def _mask(
    graph: DistributedGraph,
    heads: int,
    dropout: float,
    edge_mask: Tensor | None,
    seed: int | None,
    dtype: torch.dtype,
) -> Tensor | None:
    """Return [e, H]: the factors of the weights; None means 1."""
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout: expected a probability in [0, 1), got {dropout!r}.")
    if edge_mask is not None and dropout:
        raise ArgumentError("edge_mask, dropout: give one of them.")
    if edge_mask is not None:
        if edge_mask.shape != (graph.num_edges, heads):
            raise ArgumentError(
                f"edge_mask: expected [{graph.num_edges}, {heads}], one for each edge that ends in an owned "
                f"node and head, got {list(edge_mask.shape)}."
            )
        return edge_mask
    if dropout == 0:
        return None
    if seed is None:
        seed = int(torch.randint(2**63 - 1, (), device="cpu"))
    # Use the whole graph's edge numbers, so that the processes together draw the mask of a single process.
    return dropout_mask(graph.owned_edges, heads, dropout, seed, dtype)
