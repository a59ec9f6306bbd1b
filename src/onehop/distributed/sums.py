"""Sums over processes: of tensors, of gradients, and of the rows of all processes."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed.members import telling
from onehop.errors import ArgumentError


def add_gradients(parameters: Iterable[Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Replace every gradient by the sum of all processes' gradients, in one message.

    If the loss on each process is its rows' share of the whole loss (a sum over its own rows, divided by the
    number of all rows), the sums equal the gradients of one process with the whole graph.

    Args:
        parameters: The model's parameters, in the same order on every rank; those without a gradient count as
            zero.
        group: The processes; None means all.

    Raises:
        CommunicationError: Another process ended or did not answer.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import add_gradients
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> weight = torch.tensor([2.0, 3.0], requires_grad=True)
        >>> weight.square().sum().backward()  # on each process: the loss of its own rows
        >>> add_gradients([weight])
        >>> weight.grad  # of two processes with this loss: [8., 12.]
        tensor([4., 6.])
        >>> dist.destroy_process_group()
    """
    trainable = [each for each in parameters if each.requires_grad]
    for parameter in trainable:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for parameter in trainable:
        if parameter.grad is not None:
            by_dtype.setdefault(parameter.dtype, []).append(parameter.grad)
    for grads in by_dtype.values():
        flat = torch.cat([grad.flatten() for grad in grads])
        total(flat, group)
        for grad, summed in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
            grad.copy_(summed.view_as(grad))


def total(values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Replace ``values`` by their sum over all processes, and return them.

    Raises:
        CommunicationError: Another process ended or did not answer.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import total
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> total(torch.tensor([3.0, 4.0]))  # say, right answers and answers; of two such processes: [6., 8.]
        tensor([3., 4.])
        >>> dist.destroy_process_group()
    """
    with telling("adding up values of all ranks"):
        dist.all_reduce(values, group=group)
    return values


def sum_over_processes(values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return the sum of all processes' ``values``, on each process. Differentiable.

    The whole loss is the sum of the losses of all processes, so the gradient is summed over them too. If
    every process computes the same loss from the result, the loss counts once per process: divide it by the
    number of processes.

    Args:
        values: A tensor of the same shape and dtype on every rank.
        group: The processes; None means all.

    Raises:
        CommunicationError: Another process ended or did not answer.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import sum_over_processes
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> x = torch.tensor([[1.0], [3.0]], requires_grad=True)  # the rows of this process
        >>> mean = sum_over_processes(x.sum(0)) / 2  # 2: the rows of all processes
        >>> mean.backward()
        >>> mean.item(), x.grad.tolist()
        (2.0, [[0.5], [0.5]])
        >>> dist.destroy_process_group()
    """
    out: Tensor = _SumOverProcesses.apply(values, group)  # type: ignore[no-untyped-call]
    return out


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        return total(values.clone(memory_format=torch.contiguous_format), group)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return total(grad.clone(memory_format=torch.contiguous_format), ctx.group), None


class AllRows:
    """The rows of all processes, over which normalisations sum.

    Args:
        group: The processes; None means all.
        x: [n, ...], this process's rows.
        batch: [n], int64, the example that each row belongs to; None means one example.
        batch_size: Number of examples, B. None means one more than the largest number in any process's
            ``batch``.

    Raises:
        ArgumentError: The ranks give different numbers of examples.
        CommunicationError: Another process ended or did not answer.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> None:
        self._group = group
        self._batch = batch
        self._dtype = x.dtype
        self.batched = batch is not None
        """Whether there is a ``batch``."""
        self.examples = 1 if batch is None else self._agreed(batch, batch_size)
        self.counts = self.sum(x.new_ones(len(x), 1))
        """[B, 1], float64: the number of rows of each example, on all processes."""

    def sum(self, values: Tensor) -> Tensor:
        """Return [B, F], float64: the sum of [n, F] over the rows of each example, on all processes."""
        if self._batch is None:
            here = values.sum(0, keepdim=True, dtype=torch.float64)
        else:
            here = values.new_zeros(self.examples, values.size(1), dtype=torch.float64)
            here = here.index_add(0, self._batch, values.to(torch.float64))
        return sum_over_processes(here, self._group)

    def mean(self, values: Tensor) -> Tensor:
        """Return [B, F], float64: the mean of [n, F] over the rows of each example, on all processes."""
        return self.sum(values) / self.counts.clamp(min=1)

    def of_rows(self, values: Tensor) -> Tensor:
        """Return [n, F], or [1, F] for a single example: the value of each row's example, in x's dtype."""
        values = values.to(self._dtype)
        return values if self._batch is None else values.index_select(0, self._batch)

    def _agreed(self, batch: Tensor, batch_size: int | None) -> int:
        count = int(batch.max()) + 1 if len(batch) else 0
        said = count if batch_size is None else batch_size
        ends = torch.tensor([count, said, -said], device=batch.device)
        with telling("agreeing on the number of examples"):
            dist.all_reduce(ends, dist.ReduceOp.MAX, group=self._group)
        largest, most, least = int(ends[0]), int(ends[1]), -int(ends[2])
        if batch_size is None:
            return largest
        if most != least or largest > most:
            raise ArgumentError(
                f"batch_size: expected the same number on every rank, at least {largest}, got {batch_size} "
                f"here, and {least} to {most} on all ranks. Give the number of examples of the whole graph."
            )
        return most
