"""Lines of node numbers and values, which text formats consist of.

Fields are separated by commas, or by tabs and spaces, but not by both in one line. Text after ``#`` or ``%``
is a comment. Lines end with a line feed, optionally after a carriage return. A byte order mark is skipped.

A node number has digits, optionally after a plus sign. A value is a decimal number, optionally with a sign
and an exponent, or ``nan``, ``inf`` or ``infinity``.

Files are read in blocks of whole lines. Each block is parsed with whole-array operations. A block that these
operations do not accept is parsed line by line, which either succeeds or reports the first wrong line.
"""

import codecs
import contextlib
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from onehop.errors import FileFormatError
from onehop.graph.build import MOST_NODES

_BLOCK_BYTES = 1 << 22
_LONGEST_LINE_BYTES = 1 << 20
_COMMENT = re.compile(rb"[#%][^\n]*")
_BLANKS = re.compile(r"[ \t]+")
_NUMBER = re.compile(r"\+?0*([0-9]{1,10})")
_VALUE = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE
)
_IN_NUMBERS = b"0123456789, \t\r\n"
_IN_VALUES = _IN_NUMBERS + b"+-.eEnaifNAIF"
_SPACE = np.uint8(ord(" "))
_NO_COMMAS = bytes.maketrans(b",", b" ")
_EMPTY_FIELDS = re.compile(rb",[ \t\r]*(?:,|\n)|\n[ \t]*,")


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of every line: how many node numbers come first, and how many values follow."""

    numbers: int
    values: int

    @property
    def count(self) -> int:
        """Return the number of fields."""
        return self.numbers + self.values


# [L, numbers], int64, and [L, values], float64, for L lines that are not empty.
Columns = tuple[np.ndarray, np.ndarray]


def parse(path: Path, block: bytes, fields: Fields, first_line: int) -> Columns:
    """Return the numbers and values of every line of a block of whole lines without comments.

    Raises a FileFormatError with the number, counted from ``first_line``, and the text of the first bad line.
    """
    return parse_block(block, fields) or parse_lines(path, block, fields, first_line)


def join(parts: list[Columns]) -> Columns:
    """Concatenate the columns of all blocks; there must be at least one block."""
    numbers, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    return numbers, values


def blocks(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of whole lines without comments, each with the number of its first line."""
    line = 1
    rest = b""
    with opened(path) as file:
        while data := file.read(_BLOCK_BYTES):
            block, newline, after = (rest + data).rpartition(b"\n")
            if len(after) > _LONGEST_LINE_BYTES:
                raise FileFormatError(f"{path}: a line is longer than 1 MiB; this is no list of edges.")
            rest = after
            if newline:
                yield _COMMENT.sub(b"", block + newline), line
                line += block.count(b"\n") + 1
    if rest:
        yield _COMMENT.sub(b"", rest + b"\n"), line


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a text file after its byte order mark; it is decompressed if its name ends in ``.gz``.

    Raises a FileFormatError if compressed data are damaged, or the text is in UTF-16.
    """
    compressed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path, "rb") if compressed else path.open("rb") as file:
            start = file.peek(3)
            if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise FileFormatError(f"{path}: expected text in UTF-8, got UTF-16. Save it again in UTF-8.")
            if start.startswith(codecs.BOM_UTF8):
                file.read(len(codecs.BOM_UTF8))
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileFormatError(
            f"{path}: the compressed data are damaged ({error}); fetch the file again."
        ) from error


def take_first(block: bytes) -> tuple[int, bytes, bytes] | None:
    """Return index and text of the first non-empty line, and the block without it; None if all are empty."""
    begin = 0
    for index in range(block.count(b"\n")):
        end = block.index(b"\n", begin)
        if fields_of(block[begin:end]):
            return index, block[begin:end], block[:begin] + block[end:]
        begin = end + 1
    return None


def parse_block(block: bytes, fields: Fields) -> Columns | None:
    """Return the columns of a block of well-formed lines; None if anything is unusual."""
    if block.translate(None, delete=_IN_VALUES if fields.values else _IN_NUMBERS):
        return None
    if block.count(b"\r") != block.count(b"\r\n"):
        return None
    text = np.frombuffer(block.translate(_NO_COMMAS), dtype=np.uint8)
    in_field = text > _SPACE
    begins = in_field.copy()
    begins[1:] &= ~in_field[:-1]
    begun = np.cumsum(begins, dtype=np.int32)
    per_line = np.diff(begun[text == ord("\n")], prepend=np.int32(0))
    if ((per_line != fields.count) & (per_line != 0)).any():
        return None
    lines = int(begun[-1]) // fields.count
    if b"," in block and (
        block.count(b",") != lines * (fields.count - 1)
        or _EMPTY_FIELDS.search(block)
        or block.startswith(b",")
    ):
        return None
    values: np.ndarray | None = np.empty(0)
    if fields.values:
        in_value = in_field & ((begun - 1) % fields.count >= fields.numbers)
        in_number = in_field & ~in_value
        if (text[in_number] < ord("0")).any() or (text[in_number] > ord("9")).any():
            return None
        values = _parsed(np.where(in_value, text, _SPACE), np.float64, lines * fields.values)
        text = np.where(in_value, _SPACE, text)
    numbers = _parsed(text, np.int64, lines * fields.numbers)
    if numbers is None or values is None or (numbers.size and numbers.max() >= MOST_NODES):
        return None
    return numbers.reshape(lines, fields.numbers), values.reshape(lines, fields.values)


def _parsed(text: np.ndarray, dtype: type, count: int) -> np.ndarray | None:
    if count == 0:
        return np.empty(0, dtype=dtype)
    try:
        numbers: np.ndarray = np.fromstring(text.tobytes(), dtype=dtype, sep=" ")
    except ValueError:
        return None
    return numbers if len(numbers) == count else None


def parse_lines(path: Path, block: bytes, fields: Fields, first_line: int) -> Columns:
    """Parse a block line by line; this defines what a well-formed line is."""
    numbers: list[list[int]] = []
    values: list[list[float]] = []
    for index, raw in enumerate(block.split(b"\n")):
        words = fields_of(raw)
        if not words:
            continue
        if len(words) != fields.count:
            raise bad_line(path, first_line + index, raw, f"{fields.count} fields, as in the first line")
        found = [_NUMBER.fullmatch(word) for word in words[: fields.numbers]]
        row = [int(match[1]) for match in found if match]
        if len(row) != fields.numbers or max(row, default=0) >= MOST_NODES:
            raise bad_line(path, first_line + index, raw, f"node numbers from 0 to {MOST_NODES - 1}")
        if not all(map(_VALUE.fullmatch, words[fields.numbers :])):
            raise bad_line(path, first_line + index, raw, "a number as weight")
        numbers.append(row)
        values.append([float(word) for word in words[fields.numbers :]])
    return (
        np.array(numbers, dtype=np.int64).reshape(len(numbers), fields.numbers),
        np.array(values, dtype=np.float64).reshape(len(values), fields.values),
    )


def fields_of(line: bytes) -> list[str]:
    """Return the fields of one line; an empty list for an empty line."""
    text = line.decode("utf-8", errors="replace").strip(" \t\r")
    if "," in text:
        return [field.strip(" \t") for field in text.split(",")]
    return _BLANKS.split(text) if text else []


def bad_line(path: Path, line: int, text: bytes, expected: str) -> FileFormatError:
    """Return the error for a line: its number, its text, and the expected content."""
    shown = text.decode("utf-8", errors="replace").strip()
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return FileFormatError(f"{path}, line {line}: expected {expected}, got {shown!r}. Correct the line.")
