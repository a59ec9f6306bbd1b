"""Bytes that kernels ask for: counted in the interpreter, load by load and store by store."""

import contextlib

import numpy as np
import pytest


class Traffic:
    """What was counted."""

    bytes = 0


@contextlib.contextmanager
def counted():
    """Counts the loads and stores of everything launched within.

    Lanes that are masked out ask for nothing.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    traffic = Traffic()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def count(pointers, mask):
        size = pointers.get_element_ty().primitive_bitwidth // 8
        traffic.bytes += int(np.broadcast_to(mask.data, pointers.data.shape).sum()) * size

    def counted_load(self, ptrs, mask, *rest):
        count(ptrs, mask)
        return load(self, ptrs, mask, *rest)

    def counted_store(self, ptrs, value, mask, *rest):
        count(ptrs, mask)
        return store(self, ptrs, value, mask, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_masked_load", counted_load)
        patch.setattr(InterpreterBuilder, "create_masked_store", counted_store)
        yield traffic
