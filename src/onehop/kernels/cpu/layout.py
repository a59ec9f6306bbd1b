"""Conversion of tensors to the layout that the extension takes."""

from typing import TypeVar

import torch
from torch import Tensor

from onehop import native
from onehop.plans import CpuPlan

C = TypeVar("C")


def rows(x: Tensor) -> Tensor:
    """Return ``x``, [N, F], with contiguous rows; the stride between rows may be any."""
    return x if x.stride()[1] == 1 or x.shape[1] <= 1 else x.contiguous()


def address(tensor: Tensor | None) -> int:
    """Return the address of the first element; 0 for None.

    Raises:
        BackendError: The tensor is not on the CPU.
    """
    return 0 if tensor is None else native.address(tensor)


def planned(call: C, plan: CpuPlan, dtype: torch.dtype) -> C:
    """Return a structure of the extension with a dtype and the plan's values for the fields that it has."""
    fields = {
        "dtype": native.DTYPE_CODES[dtype],
        "threads": thread_count(plan),
        "prefetch": plan.prefetch,
        "edges_per_item": plan.edges_per_item,
    }
    for name, value in fields.items():
        if hasattr(call, name):
            setattr(call, name, value)
    return call


def edge_stride(weight: Tensor | None) -> int:
    """Return the stride between entries of a per-edge tensor; 0 for None."""
    return 0 if weight is None else weight.stride()[0]


def thread_count(plan: CpuPlan) -> int:
    """Return the number of threads to use: the plan's number, if it has one, but never more than torch's."""
    available = native.threads()
    return min(plan.threads, available) if plan.threads else available
