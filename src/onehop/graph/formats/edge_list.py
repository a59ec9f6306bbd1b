"""Lists of edges as text: one edge a line, two node numbers and perhaps a weight.

Fields are parted by commas, tabs or spaces. What follows ``#`` or ``%`` is a comment. The first line may be a
header. Large files are read in blocks, and each block is taken apart with whole-array operations; a block
that these do not understand is read line by line, which either succeeds or says what is wrong in which line.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch

from onehop.errors import FileFormatError
from onehop.graph.formats.content import MOST_NODES, FileContent, edges_from

_BLOCK_BYTES = 1 << 22
_LONGEST_LINE_BYTES = 1 << 20
_COMMENT = re.compile(rb"[#%][^\n]*")
_SEPARATOR = re.compile(r"[ \t\r]*,[ \t\r]*|[ \t\r]+")
_NUMBER = re.compile(r"[0-9]+")
_HEADER_FIELD = re.compile(r"[A-Za-z_\"'][^,\t]*")
_IN_PAIRS = b"0123456789, \t\r\n"
_IN_WEIGHTED = _IN_PAIRS + b"+-.eEnaifNAIF"
_SPACE = np.uint8(ord(" "))
_NO_COMMAS = bytes.maketrans(b",", b" ")
_EMPTY_FIELDS = re.compile(rb",[ \t\r]*(?:,|\n)|\n[ \t]*,")

# Sources, destinations, and weights where there are any.
_Edges = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def read(path: Path) -> FileContent:
    """The edges of a text file, compressed with gzip where its name ends in ``.gz``.

    Every line holds a source, a destination and, if the first edge has one, a weight. The graph has one node
    more than the largest number.

    Raises:
        FileFormatError: With the number and the text of the first bad line.
    """
    parts: list[_Edges] = []
    columns = 0
    for block, line in _blocks(path):
        if columns == 0:
            columns, block = _look_at_start(path, block, line)
        if columns:
            parts.append(_parse_block(block, columns) or _parse_lines(path, block, columns, line))
    source, target = (np.concatenate([np.empty(0, np.int64), *(part[i] for part in parts)]) for i in (0, 1))
    if len(source) == 0:
        raise FileFormatError(
            f"{path}: there is no edge in it; expected lines with a source and a destination."
        )
    weights = [part[2] for part in parts if part[2] is not None]
    num_nodes = int(max(source.max(), target.max())) + 1
    return FileContent(
        edge_index=edges_from(path, source, target, (num_nodes, num_nodes)),
        size=(num_nodes, num_nodes),
        weight=torch.from_numpy(np.concatenate(weights)) if weights else None,
    )


def _blocks(path: Path) -> Iterator[tuple[bytes, int]]:
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


def _look_at_start(path: Path, block: bytes, first_line: int) -> tuple[int, bytes]:
    """The number of columns, 0 while there was no edge yet, and the block with its header blanked out."""
    lines = block.split(b"\n")
    for index, raw in enumerate(lines):
        fields = _fields(raw)
        if not fields:
            continue
        if all(_HEADER_FIELD.fullmatch(field) for field in fields):
            lines[index] = b""
            after = b"\n".join(lines[index + 1 :])
            columns = next((len(f) for f in map(_fields, after.split(b"\n", 64)[:64]) if f), len(fields))
            block = b"\n".join(lines)
        else:
            columns = len(fields)
        if columns not in (2, 3):
            raise _bad_line(path, first_line + index, raw, "two node numbers and perhaps a weight")
        return columns, block
    return 0, block


def _parse_block(block: bytes, columns: int) -> _Edges | None:
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
    return numbers[0::2], numbers[1::2], None if weights is None else weights.astype(np.float32)


def _numbers(text: np.ndarray, dtype: type, count: int) -> np.ndarray | None:
    if count == 0:
        return np.empty(0, dtype=dtype)
    try:
        numbers: np.ndarray = np.fromstring(text.tobytes(), dtype=dtype, sep=" ")
    except ValueError:
        return None
    return numbers if len(numbers) == count else None


def _parse_lines(path: Path, block: bytes, columns: int, first_line: int) -> _Edges:
    """The same, line by line: what a well-formed line is."""
    numbers: list[int] = []
    weights: list[float] = []
    for index, raw in enumerate(block.split(b"\n")):
        fields = _fields(raw)
        if not fields:
            continue
        if len(fields) != columns:
            raise _bad_line(path, first_line + index, raw, f"{columns} fields, as in the first line")
        for field in fields[:2]:
            if not _NUMBER.fullmatch(field) or int(field) >= MOST_NODES:
                raise _bad_line(path, first_line + index, raw, f"node numbers from 0 to {MOST_NODES - 1}")
            numbers.append(int(field))
        if columns == 3:
            try:
                weights.append(float(fields[2]))
            except ValueError as error:
                raise _bad_line(path, first_line + index, raw, "a number as weight") from error
    pairs = np.array(numbers, dtype=np.int64)
    return pairs[0::2], pairs[1::2], np.array(weights, dtype=np.float32) if columns == 3 else None


def _fields(line: bytes) -> list[str]:
    text = line.decode("utf-8", errors="replace").strip(" \t\r")
    return _SEPARATOR.split(text) if text else []


def _bad_line(path: Path, line: int, text: bytes, expected: str) -> FileFormatError:
    shown = text.decode("utf-8", errors="replace").strip()
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return FileFormatError(f"{path}, line {line}: expected {expected}, got {shown!r}. Correct the line.")
