"""The GPU kernels, interpreted on the CPU."""

import importlib.util

import numpy as np
import pytest
import torch

from onehop.backends import registry
from onehop.backends.triton import TritonBackend
from onehop.plans import TritonPlan

# Rows of more than six edges are cut, rows of more than two have programs of their own.
SMALL = TritonPlan(
    split_edges=6, short_edges=2, rows_per_program=4, block_edges=4, block_features=16, num_warps=1
)
PLANS = {
    "neighbour": SMALL,
    "feature": TritonPlan(split_edges=6, short_edges=6, rows_per_program=8, block_features=16, num_warps=1),
}
collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]


@pytest.fixture(autouse=True, scope="session")
def bfloat16():
    """The interpreter cuts float32 down to bfloat16, and multiplies matrices of its bits as integers.

    GPUs round to the nearest and multiply numbers; tensor cores keep eleven bits of float32. So does this,
    where the interpreter keeps all.
    """
    import triton.language as tl
    from triton._C.libtriton.ir import INPUT_PRECISION
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    wrong, wrong_dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast(self, src, dst_type):
        if src.dtype.scalar == tl.float32 and dst_type.scalar == tl.bfloat16:
            rounded = torch.from_numpy(src.data.copy()).bfloat16().view(torch.uint16).numpy()
            return TensorHandle(rounded, dst_type.scalar)
        return wrong(self, src, dst_type)

    def dot(self, a, b, total, input_precision, *rest):
        if a.dtype.scalar == tl.bfloat16:
            a, b = (self.cast_impl(each, tl.float32) for each in (a, b))
        elif a.dtype.scalar == tl.float32 and input_precision == INPUT_PRECISION.TF32:
            a, b = (TensorHandle(cut(each.data), tl.float32) for each in (a, b))
        return wrong_dot(self, a, b, total, input_precision, *rest)

    def cut(numbers):
        return (numbers.view(np.int32) & -0x2000).view(np.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "cast_impl", cast)
        patch.setattr(InterpreterBuilder, "create_dot", dot)
        yield


@pytest.fixture
def use(monkeypatch):
    """Makes backend="triton" follow a plan."""

    def use_plan(plan):
        monkeypatch.setitem(registry._BACKENDS, "triton", TritonBackend(plan))

    return use_plan


@pytest.fixture(autouse=True)
def small_tiles(use):
    """Small graphs show what large ones would."""
    use(SMALL)
