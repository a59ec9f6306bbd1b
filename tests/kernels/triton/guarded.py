"""Launches under guard: addresses are checked, outputs start as NaN, programs are shuffled."""

import contextlib

import numpy as np
import pytest
import torch

from tests.kernels.triton.traffic import observed


class OutOfBoundsError(AssertionError):
    """A program read or wrote beside the tensors of its launch."""


@contextlib.contextmanager
def guarded(seed=0):
    """Within it, the interpreter checks addresses and takes programs in a random order.

    What torch leaves uninitialised is NaN, or the largest integer.
    """
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

    generator = np.random.default_rng(seed)
    bounds = [np.zeros(0, np.int64)] * 2
    place = InterpreterBuilder.set_grid_idx
    dims = InterpreterBuilder.set_grid_dim
    on_host = GridExecutor._init_args_hst
    order = {}

    def tensors_on_host(self, *args):
        found = on_host(self, *args)
        bounds[:] = _merged(_ranges(found))
        return found

    def grid(self, *sizes):
        order["sizes"] = sizes
        order["shuffled"] = generator.permutation(int(np.prod(sizes)))
        dims(self, *sizes)

    def shuffled(self, *at):
        number = order["shuffled"][np.ravel_multi_index(at, order["sizes"])]
        place(self, *(int(each) for each in np.unravel_index(number, order["sizes"])))

    def check(pointers, mask):
        size = pointers.get_element_ty().primitive_bitwidth // 8
        active = np.broadcast_to(mask.data, pointers.data.shape).astype(bool)
        address = pointers.data[active].astype(np.int64)
        begins, ends = bounds
        owner = np.searchsorted(begins, address, side="right") - 1
        if address.size and ((owner < 0) | (address + size > ends[owner])).any():
            raise OutOfBoundsError(
                f"{address.size} addresses of {size} bytes, some beside the launch's tensors"
            )

    with pytest.MonkeyPatch.context() as patch, observed(check):
        patch.setattr(GridExecutor, "_init_args_hst", tensors_on_host)
        patch.setattr(InterpreterBuilder, "set_grid_dim", grid)
        patch.setattr(InterpreterBuilder, "set_grid_idx", shuffled)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)


def _ranges(value):
    if isinstance(value, torch.Tensor):
        if value.numel():
            last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
            yield value.data_ptr(), value.data_ptr() + (last + 1) * value.itemsize
    elif isinstance(value, dict):
        yield from _ranges(list(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _ranges(each)


def _merged(ranges):
    """Begins and ends of the ranges, in order, those that touch as one."""
    begins, ends = [], []
    for begin, end in sorted(ranges):
        if ends and begin <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            begins.append(begin)
            ends.append(end)
    return np.array(begins, np.int64), np.array(ends, np.int64)
