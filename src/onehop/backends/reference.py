"""The specification as a backend: plain torch on any device, slow and obviously right."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop import reference
from onehop.calls import (
    Aggregate,
    Attention,
    AttentionGrad,
    AttentionGradients,
    EdgeSoftmax,
    EdgeSoftmaxGrad,
    Extremum,
    ExtremumGrad,
    Fusedmm,
    Sddmm,
    accumulator,
)
from onehop.graph import Graph


class ReferenceBackend:
    """Gathers every edge's row and scatters it, as the formulas say. Chosen only when asked for by name."""

    name = "reference"

    @property
    def operators(self) -> frozenset[type]:
        """All but those that only one of the frameworks knows."""
        return frozenset(_FORMULAS)

    def describe(self) -> str:
        """Its description."""
        return "plain torch, one row an edge; only by name"

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """It runs everywhere."""
        return None

    def plan_of_sum(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> None:
        """It has no choices."""
        return

    def run(self, graph: Graph, call: Any) -> Any:
        """The results, by the formula."""
        return _FORMULAS[type(call)](graph, call)


def _aggregate(graph: Graph, call: Aggregate) -> Tensor:
    x, weight, edge_index = call.x, call.weight, _edges(graph, call.x)
    values = _wide(x)
    if weight is not None and weight.dim() == 2:
        values = values.view(x.size(0), weight.size(1), x.size(1) // weight.size(1))
    if call.mean:
        share = _shares(graph, x).index_select(0, edge_index[1])
        weight = share if weight is None else weight * share.view(-1, *[1] * (weight.dim() - 1))
    if call.transposed:
        edge_index = edge_index.flip(0)
    out = reference.aggregate(
        edge_index, values, call.rows, weight, "sum", call.src_scale, call.dst_scale
    ).reshape(call.rows, x.size(1))
    return out if call.widen else out.to(x.dtype)


def _extremum(graph: Graph, call: Extremum) -> tuple[Tensor, Tensor]:
    edge_index = _edges(graph, call.x)
    message = _messages(edge_index, call, call.widen)
    every = torch.stack([torch.arange(graph.num_edges, device=call.x.device), edge_index[1]])
    out = reference.aggregate(every, message, graph.num_dst, reduce=call.reduce)
    if not call.with_ties:
        return out, out.new_empty(0)
    hits = (message == out.index_select(0, edge_index[1])).to(accumulator(call.x.dtype))
    return out, reference.aggregate(every, hits, graph.num_dst)


def _extremum_grad(graph: Graph, grad: ExtremumGrad) -> tuple[Tensor, Tensor]:
    """Every hit's share of the gradient."""
    call, (for_x, for_weight) = grad.call, grad.wanted
    source, target = edge_index = _edges(graph, call.x)
    message = _messages(edge_index, call, grad.extremum.dtype != call.x.dtype)
    share = (grad.grad / (grad.ties + (grad.extremum == 0))).index_select(0, target)
    hits = (message == grad.extremum.index_select(0, target)).to(share.dtype) * share
    grad_x = grad_weight = share.new_empty(0)
    if for_x:
        to_x = hits if call.weight is None or call.adds else hits * call.weight.unsqueeze(-1)
        grad_x = share.new_zeros(graph.num_src, call.x.size(1)).index_add(0, source, to_x)
    if for_weight:
        grad_weight = (hits if call.adds else hits * call.x.index_select(0, source)).sum(-1)
    return grad_x, grad_weight


def _edge_softmax(graph: Graph, call: EdgeSoftmax) -> Tensor:
    out = reference.edge_softmax(_edges(graph, call.scores), _wide(call.scores), graph.num_dst)
    return out.to(call.scores.dtype)


def _edge_softmax_grad(graph: Graph, call: EdgeSoftmaxGrad) -> Tensor:
    """Every share times its gradient, less its part of the row's sum of these."""
    target = _edges(graph, call.softmax)[1]
    product = _wide(call.softmax) * call.grad
    total = product.new_zeros(graph.num_dst, call.softmax.size(1)).index_add(0, target, product)
    return (product - call.softmax * total.index_select(0, target)).to(call.softmax.dtype)


def _sddmm(graph: Graph, call: Sddmm) -> Tensor:
    dst = _wide(call.dst)
    if call.mean:
        dst = dst * _shares(graph, dst).view(-1, 1, 1)
    out = reference.sddmm(_edges(graph, call.src), dst, _wide(call.src))
    return out if call.widen else out.to(call.src.dtype)


def _fusedmm(graph: Graph, call: Fusedmm) -> Tensor:
    edge_index = _edges(graph, call.src)
    out = reference.fusedmm(edge_index, _wide(call.dst), _wide(call.src), call.rule, call.factor)
    return out.to(call.src.dtype)


def _attention(graph: Graph, call: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for the softmax, which the gradient does without."""
    out, weights = attention_formula(graph, call)
    softmax = weights.new_zeros(graph.num_dst, 2, call.heads)
    return out.to(call.value.dtype), softmax, weights if call.with_weights else weights.new_empty(0)


def _attention_grad(graph: Graph, grad: AttentionGrad) -> tuple[Tensor, ...]:
    """Torch's own derivative of the formulas; the results of the forward pass are not needed."""
    names = [name for name, want in zip(AttentionGradients._fields, grad.wanted, strict=True) if want]
    wide = _wide_operands(grad.call)
    leaves = {name: getattr(wide, name).detach().requires_grad_() for name in names}
    with torch.enable_grad():
        again, again_weights = attention_formula(graph, wide._replace(**leaves))
        target = (again * grad.grad).sum()
        if grad.grad_weights is not None:
            target = target + (again_weights * grad.grad_weights).sum()
        found = torch.autograd.grad(target, list(leaves.values()))
    grads = {name: value.to(getattr(grad.call, name).dtype) for name, value in zip(names, found, strict=True)}
    return tuple(grads.get(name, grad.call.value.new_empty(0)) for name in AttentionGradients._fields)


_FORMULAS: dict[type, Callable[[Graph, Any], Any]] = {
    Aggregate: _aggregate,
    Attention: _attention,
    AttentionGrad: _attention_grad,
    EdgeSoftmax: _edge_softmax,
    EdgeSoftmaxGrad: _edge_softmax_grad,
    Extremum: _extremum,
    ExtremumGrad: _extremum_grad,
    Fusedmm: _fusedmm,
    Sddmm: _sddmm,
}


def _wide_operands(call: Attention) -> Attention:
    return call._replace(
        value=_wide(call.value),
        key=None if call.key is None else _wide(call.key),
        query=_wide(call.query),
        edge=None if call.edge is None else _wide(call.edge),
    )


def attention_formula(graph: Graph, call: Attention) -> tuple[Tensor, Tensor]:
    """Output and weights in the accumulator's dtype, differentiable by torch itself."""
    call = _wide_operands(call)
    edge_index, value, query = _edges(graph, call.value), call.value, call.query
    factor, dropout, seed, mask = call.factor, call.dropout, call.seed, call.mask
    if call.rule == "gat":
        assert call.key is not None
        return reference.gat(
            edge_index,
            value,
            call.key,
            query,
            factor,
            dropout,
            edge_score=call.edge,
            edge_mask=mask,
            seed=seed,
        )
    edge: Tensor | tuple[Tensor, Tensor] | None = call.edge
    if call.edge is not None and call.edge_weight is not None:
        edge = (call.edge, call.edge_weight)
    if call.rule == "gatv2":
        assert call.att is not None
        return reference.gatv2(
            edge_index, value, query, call.att, factor, dropout, edge=edge, edge_mask=mask, seed=seed
        )
    assert call.key is not None
    return reference.attention(
        edge_index, query, call.key, value, factor, dropout, edge=edge, edge_mask=mask, seed=seed
    )


def _edges(graph: Graph, x: Tensor) -> Tensor:
    return graph.edge_index().to(x.device)


def _shares(graph: Graph, x: Tensor) -> Tensor:
    return graph.inverse_in_degrees(accumulator(x.dtype)).to(x.device)


def _wide(x: Tensor) -> Tensor:
    return x.to(accumulator(x.dtype))


def _messages(edge_index: Tensor, call: Extremum, widen: bool) -> Tensor:
    message = _wide(call.x).index_select(0, edge_index[0])
    if call.weight is not None:
        weight = call.weight.unsqueeze(-1)
        message = message + weight if call.adds else message * weight
    return message if widen else message.to(call.x.dtype)
