"""Lines of two node numbers and perhaps a weight: what text formats are made of.

Fields are parted by commas, tabs or spaces. What follows ``#`` or ``%`` is a comment. Files are read in
blocks of whole lines, and each block is taken apart with whole-array operations; a block that these do not
understand is read line by line, which either succeeds or says what is wrong in which line.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from onehop.errors import FileFormatError
from onehop.files.formats.content import as_float32
from onehop.graph.build import MOST_NODES

_BLOCK_BYTES = 1 << 22
_LONGEST_LINE_BYTES = 1 << 20
_COMMENT = re.compile(rb"[#%][^\n]*")
_SEPARATOR = re.compile(r"[ \t\r]*,[ \t\r]*|[ \t\r]+")
_NUMBER = re.compile(r"[0-9]+")
_IN_PAIRS = b"0123456789, \t\r\n"
_IN_WEIGHTED = _IN_PAIRS + b"+-.eEnaifNAIF"
_SPACE = np.uint8(ord(" "))
_NO_COMMAS = bytes.maketrans(b",", b" ")
_EMPTY_FIELDS = re.compile(rb",[ \t\r]*(?:,|\n)|\n[ \t]*,")

# Sources, destinations, and weights where there are any.
Columns = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def parse(path: Path, block: bytes, columns: int, first_line: int) -> Columns:
    """The two numbers, and with three columns the weight, of every line of a block.

    Args:
        path: For messages.
        block: Whole lines without comments.
        columns: 2 or 3.
        first_line: Number of the block's first line, for messages.

    Raises:
        FileFormatError: With the number and the text of the first bad line.
    """
    return parse_block(block, columns) or parse_lines(path, block, columns, first_line)


def join(parts: list[Columns]) -> Columns:
    """The blocks' columns in one piece each."""
    first, second = (np.concatenate([np.empty(0, np.int64), *(part[i] for part in parts)]) for i in (0, 1))
    weights = [part[2] for part in parts if part[2] is not None]
    return first, second, np.concatenate(weights) if weights else None


def blocks(path: Path) -> Iterator[tuple[bytes, int]]:
    """Whole lines without comments, each block with the number of its first line."""
    line = 1
    rest = b""
    try:
        with _opened(path) as file:
            if not (start := file.read(3)).startswith(b"\xef\xbb\xbf"):
                rest = start
            while data := file.read(_BLOCK_BYTES):
                block, newline, after = (rest + data).rpartition(b"\n")
                if len(after) > _LONGEST_LINE_BYTES:
                    raise FileFormatError(f"{path}: a line is longer than 1 MiB; this is no list of edges.")
                rest = after
                if newline:
                    yield _COMMENT.sub(b"", block + newline), line
                    line += block.count(b"\n") + 1
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileFormatError(
            f"{path}: the compressed data are damaged ({error}); fetch the file again."
        ) from error
    if rest:
        yield _COMMENT.sub(b"", rest + b"\n"), line


def _opened(path: Path) -> BinaryIO:
    compressed = path.suffix.lower() == ".gz"
    return cast(BinaryIO, gzip.open(path, "rb")) if compressed else path.open("rb")


def parse_block(block: bytes, columns: int) -> Columns | None:
    """The edges of a block of well-formed lines; None where anything is unusual."""
    if block.translate(None, delete=_IN_PAIRS if columns == 2 else _IN_WEIGHTED):
        return None
    if b"," in block and (_EMPTY_FIELDS.search(block) or block.startswith(b",")):
        return None
    text = np.frombuffer(block.translate(_NO_COMMAS), dtype=np.uint8)
    in_field = text > _SPACE
    begins = in_field.copy()
    begins[1:] &= ~in_field[:-1]
    begun = np.cumsum(begins, dtype=np.int32)
    per_line = np.diff(begun[text == ord("\n")], prepend=np.int32(0))
    if ((per_line != columns) & (per_line != 0)).any():
        return None
    edges = int(begun[-1]) // columns
    weights = None
    if columns == 3:
        in_weight = in_field & (begun % 3 == 0)
        in_number = in_field & ~in_weight
        if (text[in_number] < ord("0")).any() or (text[in_number] > ord("9")).any():
            return None
        weights = _numbers(np.where(in_weight, text, _SPACE), np.float64, edges)
        if weights is None:
            return None
        text = np.where(in_weight, _SPACE, text)
    numbers = _numbers(text, np.int64, 2 * edges)
    if numbers is None or (edges and numbers.max() >= MOST_NODES):
        return None
    return numbers[0::2], numbers[1::2], None if weights is None else as_float32(weights)


def _numbers(text: np.ndarray, dtype: type, count: int) -> np.ndarray | None:
    if count == 0:
        return np.empty(0, dtype=dtype)
    try:
        numbers: np.ndarray = np.fromstring(text.tobytes(), dtype=dtype, sep=" ")
    except ValueError:
        return None
    return numbers if len(numbers) == count else None


def parse_lines(path: Path, block: bytes, columns: int, first_line: int) -> Columns:
    """The same, line by line: what a well-formed line is."""
    numbers: list[int] = []
    weights: list[float] = []
    for index, raw in enumerate(block.split(b"\n")):
        fields = fields_of(raw)
        if not fields:
            continue
        if len(fields) != columns:
            raise bad_line(path, first_line + index, raw, f"{columns} fields, as in the first line")
        for field in fields[:2]:
            if not _NUMBER.fullmatch(field) or int(field) >= MOST_NODES:
                raise bad_line(path, first_line + index, raw, f"node numbers from 0 to {MOST_NODES - 1}")
            numbers.append(int(field))
        if columns == 3:
            try:
                weights.append(float(fields[2]))
            except ValueError as error:
                raise bad_line(path, first_line + index, raw, "a number as weight") from error
    pairs = np.array(numbers, dtype=np.int64)
    return pairs[0::2], pairs[1::2], as_float32(np.array(weights)) if columns == 3 else None


def fields_of(line: bytes) -> list[str]:
    """The fields of one line; none for an empty line."""
    text = line.decode("utf-8", errors="replace").strip(" \t\r")
    return _SEPARATOR.split(text) if text else []


def bad_line(path: Path, line: int, text: bytes, expected: str) -> FileFormatError:
    """The error of a line: its number, its text, and the expected content."""
    shown = text.decode("utf-8", errors="replace").strip()
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return FileFormatError(f"{path}, line {line}: expected {expected}, got {shown!r}. Correct the line.")
