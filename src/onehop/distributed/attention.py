"""Attention over several processes: rows without halo sources first, then the rest."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onehop import ops
from onehop.calls import SCORES, Edge, Score
from onehop.distributed.aggregate import split_by_row
from onehop.distributed.checks import check_part, check_rows, check_sources
from onehop.distributed.graph import DistributedGraph
from onehop.errors import ArgumentError
from onehop.ops.attention_checks import check_edge, check_tensor
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
    """:func:`onehop.gat` over the whole graph, of which each process computes its own rows.

    Args:
        graph: This process's part.
        x: [m, H, D], a row for each of ``graph.owned_sources``. Differentiable.
        score_src: [m, H], of the dtype of x. Differentiable.
        score_dst: [n, H]. Differentiable.
        negative_slope: Slope of the leaky relu.
        dropout: As in :func:`onehop.gat`.
        edge_score: [e, H], for each of ``graph.owned_edges``; None means 0. Differentiable.
        edge_mask: [e, H], for each of ``graph.owned_edges``, multiplies the softmaxed weights; None means 1.
        seed: Seed of the dropout. With the same seed on every rank, the mask is that of :func:`onehop.gat` in
            one process. None draws a different one on each rank.

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
    return _attend(
        "gat", graph, (x, score_src, score_dst), edge_score, negative_slope, dropout, edge_mask, seed
    )


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
    """:func:`onehop.gatv2` over the whole graph, of which each process computes its own rows.

    Args:
        graph: This process's part.
        x_src: [m, H, D], a row for each of ``graph.owned_sources``. Differentiable.
        x_dst: [n, H, D], for each of ``graph.owned_nodes``. Differentiable.
        att: [H, D], the same on every rank. Differentiable: each rank gets the part of its own rows.
        negative_slope: Slope of the leaky relu.
        dropout: As in :func:`onehop.gatv2`.
        edge: Features of ``graph.owned_edges``: [e, H, D], or the pair of features [e, K] and weight
            [H * D, K], the same on every rank, which gets the gradient of its own edges. None means 0.
            Differentiable.
        edge_mask: As in :func:`gat`.
        seed: As in :func:`gat`.

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
    return _attend("gatv2", graph, (x_src, x_dst, att), edge, negative_slope, dropout, edge_mask, seed)


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
    """:func:`onehop.attention` over the whole graph, of which each process computes its own rows.

    Args:
        graph: This process's part.
        query: [n, H, D], a row for each of ``graph.owned_nodes``. Differentiable.
        key: [m, H, D], a row for each of ``graph.owned_sources``. Differentiable.
        value: [m, H, V], of the dtype of the key; V must be D where there are features of edges.
            Differentiable.
        scale: None means 1 / sqrt(D).
        dropout: As in :func:`onehop.attention`.
        edge: As in :func:`gatv2`.
        edge_mask: As in :func:`gat`.
        seed: As in :func:`gat`.

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
    return _attend("attention", graph, (query, key, value), edge, scale, dropout, edge_mask, seed)


def _attend(
    operator: str,
    graph: DistributedGraph,
    operands: Sequence[Tensor],
    edge: Edge | None,
    factor: float | None,
    dropout: float,
    edge_mask: Tensor | None,
    seed: int | None,
) -> Tensor:
    """The rows without halo sources, computed while the halo rows are in transit; then the other rows.

    One message a node has its rows of all operands of sources.
    """
    check_part(graph)
    score = SCORES[operator]
    _check(score, graph, operands)
    arguments: dict[str, Any] = {score.factor: factor}
    arguments |= {operand.name: x for operand, x in zip(score.operands, operands, strict=True)}
    sources = [operand.name for operand in score.operands if operand.shape[0] == "num_src"]
    (target,) = (operand.name for operand in score.operands if operand.shape[0] == "num_dst")
    split, inner = graph.splits.by_row(graph.loops), graph.part.inner_rows
    halves = {
        target: (arguments[target][:inner], arguments[target][inner:]),
        score.edge: _edges_by_row(score, graph, edge, operands[0]),
        "edge_mask": split_by_row(split, _mask(graph, operands[0], dropout, edge_mask, seed)),
    }
    first, second = ({name: half[at] for name, half in halves.items()} for at in (0, 1))
    run, rows = getattr(ops, operator), [arguments[source].flatten(1) for source in sources]
    pending = graph.exchange.begin(rows[0] if len(rows) == 1 else torch.cat(rows, 1))
    near = run(split.first, **arguments | first)
    halo = pending.end().split([each.size(1) for each in rows], 1)
    for source, there in zip(sources, halo, strict=True):
        here = arguments[source]
        arguments[source] = torch.cat([here, there.unflatten(1, here.shape[1:])])
    return torch.cat([near, run(split.second, **arguments | second)])


def _check(score: Score, graph: DistributedGraph, operands: Sequence[Tensor]) -> None:
    """Raises unless the operands have rows of this process's nodes, of the same number of heads."""
    first = operands[0]
    for (name, _, shape), x in zip(score.operands, operands, strict=True):
        if shape[0] == "num_src":
            check_sources(name, x, graph)
        elif shape[0] == "num_dst":
            check_rows(name, x, graph)
        if len(shape) == 3 and (x.dim() != 3 or x.size(1) != first.size(1)):
            raise ArgumentError(
                f"{name}: expected [n, H, D] with the same H in all operands, got {list(x.shape)}."
            )
        if shape[1:] == ("H",) and (x.shape[1:] != first.shape[1:2] or x.dtype != first.dtype):
            heads = first.size(1)
            raise ArgumentError(
                f"{name}: expected {first.dtype} of shape [n, {heads}], got {x.dtype} {list(x.shape)}."
            )
    if score.rule == "dot" and operands[1].dtype != operands[2].dtype:
        key, value = operands[1:]
        raise ArgumentError(f"value: expected the key's dtype {key.dtype}, got {value.dtype}; convert it.")


def _edges_by_row(score: Score, graph: DistributedGraph, edge: Edge | None, like: Tensor) -> tuple[Any, Any]:
    """The operand of edges, checked, for the edges of either graph."""
    if edge is None:
        return None, None
    split, edges, (heads, width) = graph.splits.by_row(graph.loops), graph.num_edges, like.shape[1:]
    if score.rule == "gat":
        sizes = {"e": edges, "H": heads}
        return split_by_row(split, check_tensor(score.edge, edge, ("e", "H"), sizes, like))
    fields = check_edge(edge, {"E": edges, "H": heads, "D": width}, like)
    first, second = split_by_row(split, fields["edge"])
    weight = fields.get("edge_weight")
    return (first, second) if weight is None else ((first, weight), (second, weight))


def _mask(
    graph: DistributedGraph, like: Tensor, dropout: float, edge_mask: Tensor | None, seed: int | None
) -> Tensor | None:
    """Return [e, H]: the factors of the weights; None means 1."""
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout: expected a probability in [0, 1), got {dropout!r}.")
    heads = like.size(1)
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
    return dropout_mask(graph.owned_edges, heads, dropout, seed, like.dtype)
