"""The specification as a backend: plain torch on any device, slow and obviously right."""

from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from onehop import reference
from onehop.graph import Graph
from onehop.kernels.attention_operands import AttentionGrads, AttentionOperands


class ReferenceBackend:
    """Gathers every edge's row and scatters it, as the formulas say. Chosen only when asked for by name."""

    name = "reference"

    def describe(self) -> str:
        """What it is."""
        return "plain torch, one row an edge; only by name"

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """It runs everywhere."""
        return None

    def prepare(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> None:
        """It has no choices."""
        return

    def aggregate(
        self,
        graph: Graph,
        transposed: bool,
        x: Tensor,
        weight: Tensor | None,
        src_scale: Tensor | None,
        dst_scale: Tensor | None,
        mean: bool,
        widen: bool,
    ) -> Tensor:
        """Sum or mean over each row's edges."""
        edge_index = _edges(graph, x)
        values = _wide(x)
        if weight is not None and weight.dim() == 2:
            values = values.view(x.size(0), weight.size(1), x.size(1) // weight.size(1))
        if mean:
            share = _shares(graph, x).index_select(0, edge_index[1])
            weight = share if weight is None else weight * share.view(-1, *[1] * (weight.dim() - 1))
        if transposed:
            edge_index = edge_index.flip(0)
        rows = graph.num_src if transposed else graph.num_dst
        out = reference.aggregate(edge_index, values, rows, weight, "sum", src_scale, dst_scale)
        out = out.reshape(rows, x.size(1))
        return out if widen else out.to(x.dtype)

    def extremum(
        self,
        graph: Graph,
        x: Tensor,
        weight: Tensor | None,
        reduce: str,
        widen: bool,
        with_ties: bool,
        adds: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Max or min, and the number of edges that reach it."""
        edge_index = _edges(graph, x)
        message = _messages(edge_index, x, weight, widen, adds)
        every = torch.stack([torch.arange(graph.num_edges, device=x.device), edge_index[1]])
        out = reference.aggregate(every, message, graph.num_dst, reduce=reduce)
        if not with_ties:
            return out, out.new_empty(0)
        hits = (message == out.index_select(0, edge_index[1])).to(_accumulator(x))
        return out, reference.aggregate(every, hits, graph.num_dst)

    def extremum_grad(
        self,
        graph: Graph,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        extremum: Tensor,
        ties: Tensor,
        for_x: bool,
        for_weight: bool,
        adds: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Every hit's share of the gradient."""
        source, target = edge_index = _edges(graph, x)
        message = _messages(edge_index, x, weight, extremum.dtype != x.dtype, adds)
        share = (grad / (ties + (extremum == 0))).index_select(0, target)
        hits = (message == extremum.index_select(0, target)).to(share.dtype) * share
        to_x = hits if weight is None or adds else hits * weight.unsqueeze(-1)
        grad_x = (
            share.new_zeros(graph.num_src, x.size(1)).index_add(0, source, to_x)
            if for_x
            else share.new_empty(0)
        )
        grad_weight = share.new_empty(0)
        if for_weight:
            grad_weight = hits.sum(-1) if adds else (hits * x.index_select(0, source)).sum(-1)
        return grad_x, grad_weight

    def edge_softmax(self, graph: Graph, scores: Tensor) -> Tensor:
        """[E, H]: softmax over every destination's edges."""
        edge_index = _edges(graph, scores)
        return reference.edge_softmax(edge_index, _wide(scores), graph.num_dst).to(scores.dtype)

    def edge_softmax_grad(self, graph: Graph, softmax: Tensor, grad: Tensor) -> Tensor:
        """[E, H]: every share times its gradient, less its part of the row's sum of these."""
        target = _edges(graph, softmax)[1]
        product = _wide(softmax) * grad
        total = product.new_zeros(graph.num_dst, softmax.size(1)).index_add(0, target, product)
        return (product - softmax * total.index_select(0, target)).to(softmax.dtype)

    def sddmm(self, graph: Graph, dst: Tensor, src: Tensor, mean: bool, widen: bool) -> Tensor:
        """[E, H]: a dot product for every edge and head."""
        if mean:
            dst = _wide(dst) * _shares(graph, dst).view(-1, 1, 1)
        out = reference.sddmm(_edges(graph, src), _wide(dst), _wide(src))
        return out if widen else out.to(src.dtype)

    def fusedmm(self, graph: Graph, dst: Tensor, src: Tensor, rule: str, factor: float) -> Tensor:
        """[num_dst, F]: one row an edge, weighed by its ends."""
        return reference.fusedmm(_edges(graph, src), _wide(dst), _wide(src), rule, factor).to(src.dtype)

    def attend(
        self, graph: Graph, operands: AttentionOperands, with_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention over each destination's edges; zeros for the softmax, which its gradient does without."""
        out, weights = attention_formula(graph, operands)
        softmax = weights.new_zeros(graph.num_dst, 2, operands.heads)
        return out.to(operands.value.dtype), softmax, weights if with_weights else weights.new_empty(0)

    def attend_grad(
        self,
        graph: Graph,
        operands: AttentionOperands,
        out: Tensor,
        softmax: Tensor,
        weights: Tensor | None,
        grad: Tensor,
        grad_weights: Tensor | None,
        wanted: Sequence[bool],
    ) -> AttentionGrads:
        """Torch's own derivative of the formulas; ``out``, ``softmax`` and ``weights`` are not needed."""
        names = [field.name for field, want in zip(fields(AttentionGrads), wanted, strict=True) if want]
        leaves = {name: getattr(_wide_operands(operands), name).detach().requires_grad_() for name in names}
        with torch.enable_grad():
            again, again_weights = attention_formula(graph, replace(operands, **leaves))
            target = (again * grad).sum()
            if grad_weights is not None:
                target = target + (again_weights * grad_weights).sum()
            found = torch.autograd.grad(target, list(leaves.values()))
        grads: dict[str, Tensor | None] = {field.name: None for field in fields(AttentionGrads)}
        for name, value in zip(names, found, strict=True):
            grads[name] = value.to(getattr(operands, name).dtype)
        return AttentionGrads(**grads)


def _wide_operands(operands: AttentionOperands) -> AttentionOperands:
    return replace(
        operands,
        value=_wide(operands.value),
        key=None if operands.key is None else _wide(operands.key),
        query=_wide(operands.query),
        edge=None if operands.edge is None else _wide(operands.edge),
    )


def attention_formula(graph: Graph, operands: AttentionOperands) -> tuple[Tensor, Tensor]:
    """Output and weights in the accumulator's dtype, differentiable by torch itself."""
    operands = _wide_operands(operands)
    edge_index, value, query = _edges(graph, operands.value), operands.value, operands.query
    factor, dropout, seed, mask = operands.factor, operands.dropout, operands.seed, operands.mask
    if operands.rule == "gat":
        assert operands.key is not None
        return reference.gat(
            edge_index,
            value,
            operands.key,
            query,
            factor,
            dropout,
            edge_score=operands.edge,
            edge_mask=mask,
            seed=seed,
        )
    edge: Tensor | tuple[Tensor, Tensor] | None = operands.edge
    if operands.edge is not None and operands.edge_weight is not None:
        edge = (operands.edge, operands.edge_weight)
    if operands.rule == "gatv2":
        assert operands.att is not None
        return reference.gatv2(
            edge_index, value, query, operands.att, factor, dropout, edge=edge, edge_mask=mask, seed=seed
        )
    assert operands.key is not None
    return reference.attention(
        edge_index, query, operands.key, value, factor, dropout, edge=edge, edge_mask=mask, seed=seed
    )


def _edges(graph: Graph, x: Tensor) -> Tensor:
    return graph.edge_index().to(x.device)


def _shares(graph: Graph, x: Tensor) -> Tensor:
    return graph.inverse_in_degrees(_accumulator(x)).to(x.device)


def _accumulator(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _wide(x: Tensor) -> Tensor:
    return x.to(_accumulator(x))


def _messages(edge_index: Tensor, x: Tensor, weight: Tensor | None, widen: bool, adds: bool) -> Tensor:
    message = _wide(x).index_select(0, edge_index[0])
    if weight is not None:
        message = message + weight.unsqueeze(-1) if adds else message * weight.unsqueeze(-1)
    return message if widen else message.to(x.dtype)
