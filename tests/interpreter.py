"""Triton's interpreter, faster than it comes and with the rounding of a GPU."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType

import numpy as np
import pytest
import torch

from onehop.kernels.triton import availability


@contextlib.contextmanager
def rounding_as_gpus() -> Iterator[None]:
    """Within it, bfloat16 is rounded to the nearest, and matrices are multiplied as tensor cores do.

    The interpreter cuts float32 down to bfloat16, multiplies matrices of its bits as integers, and keeps all
    bits of float32, of which tensor cores keep eleven.
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


@contextlib.contextmanager
def patched_once() -> Iterator[None]:
    """Within it, triton's language is patched once, and not anew for every call of a device function."""
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
        # Each sum of integers is computed once more in 64 bits to be compared. Compilers do not, and what
        # needs 64 bits has tests of its own, on numbers that the interpreter does not reach.
        builder = interpreter.interpreter_builder
        patch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
        yield
    if scope is not None:
        scope.restore()


@pytest.fixture(scope="module")
def interpreter() -> Iterator[None]:
    """Both, for the tests of a file; without triton neither, and those tests skip."""
    if availability.not_installed():
        yield
        return
    with rounding_as_gpus(), patched_once():
        yield
