"""Triton's interpreter, faster than it comes and with the rounding of a GPU."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest
import torch

from onehop.kernels.triton import availability


@contextlib.contextmanager
def rounding_as_gpus() -> Iterator[None]:
    """Within it, float32 is rounded to the nearest bfloat16, where the interpreter truncates."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    wrong = InterpreterBuilder.cast_impl

    def cast(self, src, dst_type):
        if src.dtype.scalar == tl.float32 and dst_type.scalar == tl.bfloat16:
            rounded = torch.from_numpy(src.data.copy()).bfloat16().view(torch.uint16).numpy()
            return TensorHandle(rounded, dst_type.scalar)
        return wrong(self, src, dst_type)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "cast_impl", cast)
        yield


def made_once(cls: type, key: Callable[..., Any], *own: str) -> Callable[..., None]:
    """An ``__init__`` that copies the attributes of the first object with the same key, except its ``own``.

    Most of an interpreter's time goes into types and shapes of values, which are the same again and again.
    """
    make, kept = cls.__init__, dict[Any, dict[str, Any]]()

    def init(self, *args):
        if (found := kept.get(name := key(*args))) is None:
            make(self, *args)
            kept[name] = dict(self.__dict__)
        else:
            self.__dict__.update(found, **dict(zip(own, args, strict=False)))

    return init


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
        builder, core = interpreter.interpreter_builder, language.core
        patch.setattr(core.tensor, "__init__", made_once(core.tensor, lambda _, kind: str(kind), "handle"))
        patch.setattr(
            core.block_type, "__init__", made_once(core.block_type, lambda of, shape: (str(of), str(shape)))
        )
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
