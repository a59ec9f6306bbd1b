"""Source lines of a message, which refusals name."""

import linecache
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import torch

Line = tuple[str, int]
"""The path of a file, and the number of a line."""

# Folders of torch and onehop, whose code calls a message or is called by it.
_OTHERS = tuple(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
_BEFORE = ", in line "


def line_below(end: CodeType, frame: FrameType | None) -> Line | None:
    """Return the line of the message that called an operation; None if it is not known.

    Args:
        end: The code that calls the message.
        frame: The current frame, below the operation.
    """
    line = None
    while frame is not None and frame.f_code is not end:
        if not frame.f_code.co_filename.startswith(_OTHERS):
            line = frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return line


def line_of_error(traceback: TracebackType | None) -> Line | None:
    """Return the line of the message that an exception came from; None if it is not known."""
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not path.startswith(_OTHERS):
            return path, traceback.tb_lineno
        traceback = traceback.tb_next
    return None


def at_line(line: Line | None) -> str:
    """Return the end of a sentence, which names the source line; empty if the line is not known."""
    if line is None:
        return ""
    path, number = line
    source = linecache.getline(path, number).strip()
    return f"{_BEFORE}{number} of {Path(path).name}" + (f" (`{source}`)" if source else "")


def without_line(sentence: str) -> str:
    """Return a sentence without the source line that it names."""
    return sentence.split(_BEFORE)[0]
