"""Comparison with the reference; the naive version of the same precision sets the tolerance."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# The smallest numbers worth telling apart, and how many times the naive version's error is allowed.
UNIT = {torch.float64: 1e-14, torch.float32: 5e-7, torch.bfloat16: 8e-3, torch.float16: 1e-3}
FACTOR = 4.0


def assert_as_good_as(
    name: str, ours: Tensor, naive: Tensor, exact: Tensor, magnitude: float = 1e-30
) -> None:
    """``ours`` errs at most a few times as much as the naive computation of the same precision.

    ``magnitude`` is that of the numbers of which results are differences, where they may cancel.
    """
    assert ours.dtype == naive.dtype, f"{name}: {ours.dtype} instead of {naive.dtype}"
    assert ours.shape == exact.shape, f"{name}: {tuple(ours.shape)} instead of {tuple(exact.shape)}"
    if not exact.numel():
        return
    assert torch.equal(ours.isnan(), exact.isnan()), f"{name}: NaN in other places"
    scale = exact.nan_to_num().abs().max().item()
    naive_error = (naive.double() - exact).nan_to_num().abs().max().item()
    error = (ours.double() - exact).nan_to_num().abs().max().item()
    allowed = FACTOR * naive_error + FACTOR * UNIT[ours.dtype] * max(scale, magnitude)
    assert error <= allowed, f"{name}: error {error:.3g}, allowed {allowed:.3g} (naive {naive_error:.3g})"


def compare(
    fast: Callable[..., Tensor],
    naive: Callable[..., Tensor],
    inputs: dict[str, Tensor | None],
    differentiate: Sequence[str],
    magnitude: float = 1e-30,
) -> None:
    """Output and the gradient to every named input, against the naive version in float64."""
    results = []
    for function, dtype in ((fast, None), (naive, None), (naive, torch.float64)):
        leaves = {
            name: None if t is None else t.detach().to(dtype or t.dtype).requires_grad_(name in differentiate)
            for name, t in inputs.items()
        }
        out = function(**leaves)
        generator = torch.Generator().manual_seed(3)
        grad = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(
            results[0][0].dtype if results else out.dtype
        )
        wanted = [leaves[name] for name in differentiate]
        grads = torch.autograd.grad(out, wanted, grad.to(out.dtype)) if wanted else ()
        results.append((out.detach(), *grads))
    for name, ours, same, exact in zip(("output", *differentiate), *results, strict=True):
        assert_as_good_as(name, ours, same, exact, magnitude)
