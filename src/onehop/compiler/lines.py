"""Lines of a message, for the sentences that say what is in the way of it."""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch
from torch.nn import Module

Line = tuple[str, int]
"""The path of a file, and the number of a line."""

# What is called by a message, or calls it.
_OTHERS = tuple(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
_CHANGING = frozenset({
    "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard", "update",
    "setdefault", "popitem",
})  # fmt: skip
_BEFORE = ", in line "


def line_below(end: CodeType, frame: FrameType | None) -> Line | None:
    """The line of the message that an operation was called from; None if that is not known.

    Args:
        end: What calls the message.
        frame: What the operation leads to.
    """
    found = None
    while frame is not None and frame.f_code is not end:
        if not frame.f_code.co_filename.startswith(_OTHERS):
            found = frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return found


def line_of_error(traceback: TracebackType | None) -> Line | None:
    """The line of the message that an exception came from."""
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not path.startswith(_OTHERS):
            return path, traceback.tb_lineno
        traceback = traceback.tb_next
    return None


def line_that_stores(message: Callable[..., Any], name: str | None) -> Line | None:
    """The first line of a message that sets an attribute, or changes what an attribute holds.

    Args:
        message: The message.
        name: Of the attribute; None for any that holds a list, a dictionary or a set.
    """
    function = _function_of(message)
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    numbers = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr) and _stores(node, name)]
    return (function.__code__.co_filename, first + min(numbers) - 1) if numbers else None


def _stores(node: ast.expr, name: str | None) -> bool:
    if name is not None:
        return isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store | ast.Del) and isinstance(node.value, ast.Attribute)
    called = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(called, ast.Attribute)
        and called.attr in _CHANGING
        and isinstance(called.value, ast.Attribute)
    )


def _function_of(message: Any) -> Any:
    """The Python function behind a message."""
    while True:
        if isinstance(message, Module):
            message = message.forward
        elif inspect.ismethod(message):
            message = message.__func__
        else:
            return message


def told(line: Line | None) -> str:
    """The end of a sentence that says which line it is about; empty if that is not known."""
    if line is None:
        return ""
    path, number = line
    source = linecache.getline(path, number).strip()
    return f"{_BEFORE}{number} of {Path(path).name}" + (f" (`{source}`)" if source else "")


def without_line(sentence: str) -> str:
    """A sentence without the line that it is about."""
    return sentence.split(_BEFORE)[0]
