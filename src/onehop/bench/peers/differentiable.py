"""Products that know nothing of gradients, made part of torch's graph as a user would have to."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, product: Product, transposed: Product) -> Tensor:
        ctx.transposed = transposed
        return product(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return ctx.transposed(grad), None, None


def forward_and_backward(
    product: Product, transposed: Product, x: Tensor, grad: Tensor
) -> Callable[[], Tensor]:
    """A call that returns the gradient of x, for a linear product and its transpose."""
    leaf = x.detach().clone().requires_grad_()

    def run() -> Tensor:
        out = _Linear.apply(leaf, product, transposed)  # type: ignore[no-untyped-call]
        return torch.autograd.grad(out, leaf, grad)[0]

    return run
