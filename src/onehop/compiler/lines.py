"""Lines of a message, for the sentences that say what is in the way of it."""

import linecache
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import torch

Line = tuple[str, int]
"""The path of a file, and the number of a line."""

# What is called by a message, or calls it.
_OTHERS = tuple(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
_BEFORE = ", in line "


def line_below(end: CodeType, frame: FrameType | None) -> Line | None:
    """The line of the message that an operation was called from; None if that is not known.

    Args:
        end: What calls the message.
        frame: What the operation leads to.
    """
    line = None
    while frame is not None and frame.f_code is not end:
        if not frame.f_code.co_filename.startswith(_OTHERS):
            line = frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return line


def line_of_error(traceback: TracebackType | None) -> Line | None:
    """The line of the message that an exception came from."""
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not path.startswith(_OTHERS):
            return path, traceback.tb_lineno
        traceback = traceback.tb_next
    return None


def at_line(line: Line | None) -> str:
    """The end of a sentence that says which line it is about; empty if that is not known."""
    if line is None:
        return ""
    path, number = line
    source = linecache.getline(path, number).strip()
    return f"{_BEFORE}{number} of {Path(path).name}" + (f" (`{source}`)" if source else "")


def without_line(sentence: str) -> str:
    """A sentence without the line that it is about."""
    return sentence.split(_BEFORE)[0]
