"""Computations in pieces, made again in the backward pass, against the same computation at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from onehop.ops.recomputed import Needs, Whole, recomputed

ROWS, INNER, WIDTH, STEP = 7, 4, 3, 2


def whole(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Two results, of which the first does not depend on the bias."""
    inner = (x @ weight).sin()
    return inner.cumsum(1), (inner * bias).sum(1)


@dataclass
class InPieces(Whole):
    """The same, some rows at a time; it notes what it was told to do."""

    ran: list[str] = field(default_factory=list)
    largest: int = 0

    def forward(self, operands: Sequence[Tensor]) -> tuple[tuple[Tensor, Tensor], tuple[Tensor]]:
        self.ran.append("forward")
        x, weight, bias = operands
        pieces = [whole(rows, weight, bias) for rows in x.split(STEP)]
        self.largest = max(self.largest, *(piece[0].size(0) for piece in pieces))
        first, second = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        return (first, second), (first.detach().sum(),)

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], kept: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        self.ran.append("gradients")
        x, weight, bias = operands
        assert torch.equal(kept[0], whole(x, weight, bias)[0].detach().sum())
        for grad in grads:
            if grad is not None:
                grad.data_ptr()  # a batched tensor has none
        found = [torch.zeros_like(each) for each in operands]
        for begin in range(0, len(x), STEP):
            rows = slice(begin, begin + STEP)
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in (x[rows], weight, bias)]
                pairs = [
                    (result, grad[rows])
                    for result, grad in zip(whole(*leaves), grads, strict=True)
                    if grad is not None
                ]
            outs, pulled = zip(*pairs, strict=True)
            parts = torch.autograd.grad(outs, leaves, pulled, materialize_grads=True)
            for total, part in zip((found[0][rows], *found[1:]), parts, strict=True):
                total += part
        return tuple(each for each, need in zip(found, needs, strict=True) if need)

    def differentiable(
        self, needs: Needs, operands: Sequence[Tensor], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        self.ran.append("differentiable")
        return super().differentiable(needs, operands, *grads)

    def whole(self, *operands: Tensor) -> tuple[Tensor, Tensor]:
        return whole(*operands)


def operands(*needs: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(ROWS, INNER), (INNER, WIDTH), (WIDTH,)]
    made = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    return [each.requires_grad_(need) for each, need in zip(made, needs or (True,) * 3, strict=True)]


def wanted(given: Sequence[Tensor]) -> list[Tensor]:
    return [each for each in given if each.requires_grad]


def assert_same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("needs", list(product([False, True], repeat=3))[1:])
@pytest.mark.parametrize("results", [(0,), (1,), (0, 1)])
def test_gradients(needs, results):
    given, pieces = operands(*needs), InPieces()
    outs, expected = recomputed(pieces, *given), whole(*given)
    assert_same(outs, expected)
    chosen = [at for at in results if expected[at].requires_grad]
    if not chosen:
        # Only the first result is pulled, and it does not depend on the bias.
        chosen = [0, 1]
    losses = [sum(each[at].pow(2).sum() for at in chosen) for each in (outs, expected)]
    ours, theirs = (torch.autograd.grad(l, wanted(given), materialize_grads=True) for l in losses)  # noqa: E741
    assert_same(ours, theirs)
    assert pieces.ran == ["forward", "gradients"]
    assert pieces.largest == STEP


@pytest.mark.parametrize("context", ["no_grad", "nothing needs one"])
def test_nothing_is_recorded_without_need(context):
    given, pieces = operands(*[context == "no_grad"] * 3), InPieces()
    with torch.set_grad_enabled(context != "no_grad"):
        outs = recomputed(pieces, *given)
    assert not any(out.requires_grad for out in outs)
    assert_same(outs, whole(*[each.detach() for each in given]))


def test_no_gradient_came_back():
    given, pieces = operands(), InPieces()
    outs = recomputed(pieces, *given)
    # A function that passes none on.
    found = torch.autograd.grad(Stopped.apply(*outs), given, allow_unused=True)
    assert found == (None, None, None)
    assert pieces.ran == ["forward"]


class Stopped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        return tensors[0].sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None


def test_double_backward():
    given, pieces = operands(), InPieces()
    found = []
    for outs in (recomputed(pieces, *given), whole(*given)):
        loss = outs[0].pow(2).sum() + outs[1].exp().sum()
        first = torch.autograd.grad(loss, given, create_graph=True)
        found.append([*first, *torch.autograd.grad(sum(g.pow(2).sum() for g in first), given)])
    assert_same(*found)
    # The second pass goes through the results too, whose gradients depend on them.
    assert pieces.ran == ["forward", "differentiable", "gradients"]


def test_an_operand_that_was_made_from_another_in_a_double_backward():
    (x, *others), found = operands(), []
    for function in (partial(recomputed, InPieces()), whole):
        made = (x.sum(0)[:WIDTH] * others[1]).tanh()
        loss = sum(out.pow(2).sum() for out in function(x, others[0], made))
        first = torch.autograd.grad(loss, [x, made], create_graph=True)
        found.append([*first, *torch.autograd.grad(first[0].pow(2).sum(), [x, *others])])
    assert_same(*found)


@pytest.mark.parametrize("vmap", ["older", "newer", "newer, nested"])
@pytest.mark.parametrize("of_both", [False, True])
def test_batched_gradients(vmap, of_both):
    given, pieces, batch = operands(), InPieces(), 3
    generator = torch.Generator().manual_seed(4)
    shapes = [(ROWS, WIDTH), (ROWS,)][: 1 + of_both]
    pulled = [torch.randn(batch, *each, dtype=torch.float64, generator=generator) for each in shapes]

    def gradients(function: Callable[..., Any]) -> Sequence[Tensor]:
        outs = function(*given)[: 1 + of_both]
        gradient = partial(torch.autograd.grad, outs, given, retain_graph=True, materialize_grads=True)
        if vmap == "older":
            return gradient(pulled, is_grads_batched=True)
        if vmap == "newer":
            return torch.vmap(lambda *grads: gradient(grads))(*pulled)
        twice = [each.unsqueeze(0).expand(2, *each.shape) for each in pulled]
        return torch.vmap(torch.vmap(lambda *grads: gradient(grads)))(*twice)

    ours, theirs = gradients(partial(recomputed, pieces)), gradients(whole)
    # Zeros that torch puts for a missing gradient have no batch.
    assert_same(ours, [each.expand_as(one) for one, each in zip(ours, theirs, strict=True)])
    assert set(pieces.ran[1:]) == {"gradients"}


def test_a_vectorized_hessian():
    x, *others = operands(True, False, False)

    def hessian(function: Callable[..., Any]) -> Any:
        return torch.autograd.functional.hessian(
            lambda rows: sum(out.pow(2).sum() for out in function(rows, *others)), x, vectorize=True
        )

    torch.testing.assert_close(hessian(partial(recomputed, InPieces())), hessian(whole))


def test_autograd_keeps_the_operands_and_what_the_computation_keeps():
    given, kept = operands(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        recomputed(InPieces(), *given)
    assert [each.shape for each in kept] == [*(each.shape for each in given), ()]


@pytest.mark.parametrize("at", range(3))
def test_a_write_to_an_operand_before_the_backward_pass_is_an_error(at):
    given = operands()
    outs = recomputed(InPieces(), *given)
    with torch.no_grad():
        given[at].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outs[0].sum().backward()


def test_two_backward_passes_and_a_third_without_its_graph():
    given, pieces = operands(), InPieces()
    outs = recomputed(pieces, *given)
    first, second = (torch.autograd.grad(outs, given, outs, retain_graph=again) for again in (True, False))
    assert_same(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(outs, given, outs)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant):
    given, pieces = operands(), InPieces()
    outs = checkpoint(partial(recomputed, pieces), *given, use_reentrant=reentrant)
    sum(out.pow(2).sum() for out in outs).backward()
    again = operands()
    sum(out.pow(2).sum() for out in whole(*again)).backward()
    assert_same([each.grad for each in given], [each.grad for each in again])
    assert pieces.ran == ["forward", "forward", "gradients"]
