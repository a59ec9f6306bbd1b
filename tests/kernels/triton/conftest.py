"""The GPU kernels, interpreted on the CPU."""

from types import FunctionType

import numpy as np
import pytest
import torch

from onehop.backends import registry
from onehop.backends.triton import TritonBackend
from onehop.kernels.triton import availability
from onehop.plans import TritonPlan

# Rows of more than six edges are cut, rows of more than two have programs of their own.
SMALL = TritonPlan(
    split_edges=6, short_edges=2, rows_per_program=8, block_edges=4, block_features=16, num_warps=1
)
PLANS = {
    "neighbour": SMALL,
    "feature": TritonPlan(split_edges=6, short_edges=6, rows_per_program=8, block_features=16, num_warps=1),
}
collect_ignore_glob = ["test_*.py"] if availability.not_installed() else []


@pytest.fixture(autouse=True, scope="session")
def bfloat16():
    """The interpreter cuts float32 down to bfloat16, and multiplies matrices of its bits as integers.

    GPUs round to the nearest and multiply numbers, and so does this. Of float32, tensor cores keep eleven
    bits; so does this, where the interpreter keeps all.
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


@pytest.fixture(autouse=True, scope="package")
def patched_once():
    """The interpreter patches triton's language anew for every call of a device function; once will do."""
    from triton import language
    from triton.runtime import interpreter

    # What kernels and what triton's own functions see of the language.
    function = FunctionType((lambda: None).__code__, {"tl": language, "core": language.core})
    # None in triton 3.4, which leaves the language patched.
    scope = interpreter._patch_lang(function)
    nothing = getattr(interpreter, "_LangPatchScope", type(None))
    with pytest.MonkeyPatch.context() as patch:
        # As triton 3.9 has it; before, a number is made of an array of one as NumPy 2.4 no longer allows.
        patch.setattr(language.core.tensor, "__index__", lambda self: self.handle.data.item(), raising=False)
        patch.setattr(interpreter, "_patch_lang", lambda _: nothing())
        yield
    if scope is not None:
        scope.restore()


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
