"""Training helpers besides the operators."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed.failures import failed


def add_gradients(parameters: Iterable[Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Replaces every gradient by the sum of all processes' gradients, in one message.

    If the loss on each process is its rows' share of the whole loss (a sum over its own rows, divided by the
    number of all), the sums are the gradients of one process with the whole graph.

    Args:
        parameters: The model's parameters, in the same order on every rank; those without a gradient count as
            zero.
        group: The processes; None means all.

    Raises:
        CommunicationError: Another process ended or did not answer.
    """
    wanted = [each for each in parameters if each.requires_grad]
    for each in wanted:
        if each.grad is None:
            each.grad = torch.zeros_like(each)
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for each in wanted:
        if each.grad is not None:
            by_dtype.setdefault(each.dtype, []).append(each.grad)
    for grads in by_dtype.values():
        flat = torch.cat([grad.flatten() for grad in grads])
        total(flat, group)
        for grad, summed in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
            grad.copy_(summed.view_as(grad))


def total(values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """``values``, replaced by their sum over all processes.

    Raises:
        CommunicationError: Another process ended or did not answer.
    """
    try:
        dist.all_reduce(values, group=group)
    except RuntimeError as error:
        raise failed("adding up values of all ranks", error) from error
    return values
