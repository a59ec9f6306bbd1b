"""torch's functions on divided rows: batch normalisation over all processes, and dropout.

A converted model draws on each process for itself, so that dropout stays torch's own; without it, processes
that were seeded alike would drop the same positions.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import BatchNorm

from onehop.distributed.converted import may_be_divided, processes_of
from onehop.distributed.sums import AllRows
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, stand_in


def rows() -> list[Row]:
    """The table's rows."""
    functional = torch.nn.functional
    return [
        Row(functional, "batch_norm", _over_processes(functional.batch_norm), functional.batch_norm),
        Row(BatchNorm, "forward", _single(BatchNorm.forward), BatchNorm.forward),
        Row(functional, "dropout", _converted(functional.dropout), functional.dropout),
    ]


def _over_processes(theirs: Callable[..., Any]) -> Callable[..., Any]:
    divided, ours = may_be_divided, _batch_norm

    def batch_norm(  # type: ignore[no-untyped-def]
        input,
        running_mean,
        running_var,
        weight=None,
        bias=None,
        training=False,
        momentum=0.1,
        eps=1e-5,
    ):
        if training and divided():
            return ours(input, running_mean, running_var, weight, bias, momentum, eps)
        return theirs(input, running_mean, running_var, weight, bias, training, momentum, eps)

    return stand_in(theirs, batch_norm)


def _single(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """PyG's module, which takes a single row for a whole batch."""
    divided = may_be_divided

    def forward(self, x):  # type: ignore[no-untyped-def]
        if self.allow_single_element and self.training and divided():
            return self.module(x)
        return theirs(self, x)

    return stand_in(theirs, forward)


def _converted(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Dropout, after a check that a converted model runs."""
    divided, check = may_be_divided, processes_of

    def dropout(input, p=0.5, training=True, inplace=False):  # type: ignore[no-untyped-def]
        if training and p and divided():
            check("dropout")
        return theirs(input, p, training, inplace)

    return stand_in(theirs, dropout)


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    group = processes_of("batch normalisation").group
    if x.dim() != 2:
        raise ArgumentError(
            f"input: batch normalisation over several processes takes [n, F], one row for each node or edge, "
            f"got {list(x.shape)}. Reshape it."
        )
    given = x.dtype
    if given in (torch.bfloat16, torch.float16):
        x = x.float()  # as torch does inside
    everyone = AllRows(group, x)
    count = int(everyone.counts)
    if count < 2:
        raise ArgumentError(
            f"input: batch normalisation in training expected two rows or more, got {count} on all "
            "processes. Call eval() first."
        )
    mean = everyone.mean(x)
    centred = x - everyone.of_rows(mean)
    variance = everyone.mean(centred.square())
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean[0].to(running_mean.dtype), momentum)
        if running_var is not None:
            unbiased = variance[0] * (count / (count - 1))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    out = centred * everyone.of_rows((variance + eps).rsqrt())
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out.to(given)
