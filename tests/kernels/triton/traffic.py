"""Bytes that kernels read and write: counted in the interpreter, load by load and store by store."""

import contextlib

import numpy as np
import pytest


class Traffic:
    """What was counted."""

    bytes = 0


@contextlib.contextmanager
def observed(see):
    """Calls ``see`` with the pointers and the mask of every load and store of what is launched within."""
    from triton.runtime.interpreter import InterpreterBuilder

    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def observed_load(self, ptrs, mask, *rest):
        see(ptrs, mask)
        return load(self, ptrs, mask, *rest)

    def observed_store(self, ptrs, value, mask, *rest):
        see(ptrs, mask)
        return store(self, ptrs, value, mask, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_masked_load", observed_load)
        patch.setattr(InterpreterBuilder, "create_masked_store", observed_store)
        yield


@contextlib.contextmanager
def counted():
    """Counts the loads and stores of everything launched within.

    Lanes that are masked out request nothing.
    """
    traffic = Traffic()

    def count(pointers, mask):
        size = pointers.get_element_ty().primitive_bitwidth // 8
        traffic.bytes += int(np.broadcast_to(mask.data, pointers.data.shape).sum()) * size

    with observed(count):
        yield traffic
