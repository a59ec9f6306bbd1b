"""Text files of edges: their form, which is determined by rules, and their records.

The delimiter follows from the file's name unless it is given, and quoting follows RFC 4180. No rule looks at
a sample: :func:`looked_through` reads the whole file, and DuckDB parses it only if there is exactly one way
to do so.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from onehop.errors import FileFormatError
from onehop.files.formats import konect
from onehop.storage import writing
from onehop.streaming.from_file import columns
from onehop.streaming.from_file.request import BLANKS, Request

_COMMENT = re.compile(r"\s*$|[#%]")
_LONGEST_LINE = 1 << 20
_BLOCK = 1 << 22
# Bytes that determine how DuckDB may parse and convert.
_MARKS = (b'"', b".", b"_", b"(", b" ", b"\t")


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file and its form.

    Attributes:
        path: The file, decompressed.
        name: The file that the user named, for error sentences.
        delimiter: The delimiter, or :data:`BLANKS`.
        names: The name of each column; column0, column1 and so on without a header.
        skipped: Number of lines before the first edge: comments and the header.
        first: The fields of the first edge; None if there are no edges.
    """

    path: Path
    name: Path
    delimiter: str
    names: list[str]
    skipped: int
    first: list[str] | None

    def edges(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each edge: the number of its first line, and its fields.

        Raises a FileFormatError if an edge has more or fewer fields than the first line, or does not follow
        RFC 4180.
        """
        if self.first is None:
            return
        expected = len(self.names)
        for line, fields in _records(self.path, self.name, self.delimiter, self.skipped):
            if len(fields) == expected + 1 and not fields[-1]:
                del fields[-1]  # the line ends with a delimiter
            if len(fields) != expected:
                raise FileFormatError(
                    f"{self.name}, line {line}: expected {expected} columns with {_text(self.delimiter)} "
                    f"between them, as in the first line, got {len(fields)}. Correct the line; a field that "
                    "holds the delimiter needs quotation marks around it."
                )
            yield line, fields


class Content(NamedTuple):
    """Properties of the bytes of a file that determine how DuckDB can read it.

    Attributes:
        exact: Whether only :meth:`TextFile.edges` parses the file correctly. DuckDB refuses mixed line ends
            and runs of blanks, and drops a last record with an unclosed quote.
        delimiter: The delimiter for DuckDB.
        quotes: Whether the file has a quotation mark.
        points: Whether the file has a decimal point.
        letters: Whether the file has anything other than ASCII digits: letters, or an underscore.
        underscores: Whether the file has an underscore or a bracket.
    """

    exact: bool
    delimiter: str
    quotes: bool
    points: bool
    letters: bool
    underscores: bool


def opened(request: Request, folder: Path) -> TextFile:
    """Return the file of a request and its form; the file is decompressed into a folder if needed.

    Raises:
        FileFormatError: The file is empty or damaged, or its first line can be read in two ways.
        StorageError: The disk is full.
    """
    path, delimiter = request.path, request.separator
    if path.suffix.lower() == ".gz":
        path = folder / "uncompressed"
        _uncompress(request.path, path)
    with path.open("rb") as stream:
        if request.one_set and konect.is_bipartite(iter(lambda: stream.readline(_LONGEST_LINE), b"")):
            raise FileFormatError(
                f"{request.path}: expected one set of nodes, got the header of a bipartite network, whose "
                "sources and destinations are numbered apart. Give bipartite=True (--bipartite), or "
                "nodes=(num_src, num_dst)."
            )
    begun = _records(path, request.path, delimiter)
    line, fields = next(begun, (0, []))
    if not fields:
        raise FileFormatError(f"{request.path}: the file is empty, or has comments alone.")
    if len(fields) == 1:
        other = next((each for each in (",", ";", "|", "\t", " ") if each in fields[0].strip()), None)
        advice = "" if other is None else f"; this line has {other!r}"
        raise FileFormatError(
            f"{request.path}, line {line}: expected a column of sources and one of destinations with "
            f"{_text(delimiter)} between them, got {fields[0]!r}. Name the delimiter (--delimiter){advice}."
        )
    header = columns.is_header(request, line, fields)
    names = [name.strip() for name in fields] if header else [f"column{k}" for k in range(len(fields))]
    if header:
        line, fields = next(begun, (1, []))
    return TextFile(path, request.path, delimiter, names, line - 1, fields or None)


def looked_through(file: TextFile, progress: Callable[[float], None]) -> Content:
    """Read all bytes of a file and return what they allow.

    ``progress`` is called with the share of the file that was read, 0 to 1. Raises a FileFormatError if the
    file has a zero byte.
    """
    marks, ends = set[bytes](), set[bytes]()
    blanks, quotes = file.delimiter == BLANKS, _Quotes(file.delimiter)
    exact, letters = len(file.delimiter) > 1 and not blanks, False
    size = max(file.path.stat().st_size, 1)
    with file.path.open("rb") as stream:
        head = b"".join(islice(stream, file.skipped))
        ends |= _line_ends(head)
        read = len(head)
        while block := stream.read(_BLOCK):
            rest = stream.readline(_LONGEST_LINE)
            block += rest
            if b"\0" in block:
                line = _line_at(file.path, read + block.index(b"\0"))
                raise FileFormatError(
                    f"{file.name}, line {line}: expected text, got a byte 0. If the file is UTF-16, save it "
                    "as UTF-8."
                )
            ends |= _line_ends(block)
            marks |= {each for each in _MARKS if each not in marks and each in block}
            codes = np.frombuffer(block, np.uint8)
            letters = letters or bool(codes.max() > ord("9"))
            if blanks:
                exact = exact or _has_runs(codes, block.count(b"\r\n"))
            elif b'"' in block:
                exact = not quotes.fit(codes) or exact
            exact = exact or len(rest) == _LONGEST_LINE
            read += len(block)
            progress(read / size)
    if blanks:
        exact = exact or {b" ", b"\t"} <= marks or b'"' in marks
    exact = exact or quotes.open or len(ends) > 1 or b"\r" in ends
    return Content(
        exact=exact,
        delimiter=file.delimiter if not blanks else " " if b" " in marks else "\t",
        quotes=b'"' in marks,
        points=exact or b"." in marks,
        letters=exact or letters,
        underscores=exact or bool({b"_", b"("} & marks),
    )


def _uncompress(path: Path, into: Path) -> None:
    with gzip.open(path, "rb") as source, into.open("wb") as target:
        while True:
            try:
                block = source.read(_BLOCK)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise FileFormatError(
                    f"{path}: the compressed data are damaged ({error}). Copy the file again."
                ) from error
            if not block:
                return
            with writing("out", into):
                target.write(block)


def _records(path: Path, name: Path, delimiter: str, skipped: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each record's first line, and its fields.

    ``name`` is the file's name for error sentences; the delimiter has one or more characters, or is
    :data:`BLANKS`. ``skipped`` lines are skipped; 0 also skips comments, which are allowed only at the begin
    of a file. Raises a FileFormatError if a record does not follow RFC 4180, or a line is longer than 1 MiB.
    """
    # Bytes that are not UTF-8 matter only in columns that are read.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        lines = _lines(stream, name)
        for _ in range(skipped):
            next(lines)
        before = skipped
        for line in lines:
            if skipped or _COMMENT.match(line) is None:
                lines = chain([line], lines)
                break
            before += 1
        if len(delimiter) > 1:
            yield from _split(lines, name, delimiter, before)
            return
        parsed, begin = csv.reader(lines, delimiter=delimiter, strict=True), before + 1
        try:
            for fields in parsed:
                if fields:
                    yield begin, fields
                begin = before + parsed.line_num + 1
        except csv.Error as error:
            raise FileFormatError(
                f"{name}, line {begin}: expected fields as in RFC 4180 ({error}). A field that begins with a "
                "quotation mark ends with one, and holds others doubled."
            ) from error


def _split(lines: Iterator[str], name: Path, delimiter: str, before: int) -> Iterator[tuple[int, list[str]]]:
    """Yield records without quotes; the delimiter is :data:`BLANKS` or has several characters."""
    for number, line in enumerate(lines, before + 1):
        text = line.strip(" \t\r\n") if delimiter == BLANKS else line.rstrip("\r\n")
        if '"' in text:
            raise FileFormatError(
                f"{name}, line {number}: expected no quotation mark with {_text(delimiter)} between columns, "
                f"got {text[:80]!r}. Quoted fields need a delimiter of one character; name it (--delimiter)."
            )
        if text:
            yield number, re.split("[ \t]+", text) if delimiter == BLANKS else text.split(delimiter)


def _lines(stream: IO[str], name: Path) -> Iterator[str]:
    number = 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE and line[-1] not in "\r\n":
            raise FileFormatError(
                f"{name}, line {number}: the line is longer than 1 MiB; this is no list of edges."
            )
        yield line


def _line_ends(block: bytes) -> set[bytes]:
    if b"\r" not in block:
        return {b"\n"} if b"\n" in block else set()
    pairs = block.count(b"\r\n")
    counts = {b"\r\n": pairs, b"\r": block.count(b"\r") - pairs, b"\n": block.count(b"\n") - pairs}
    return {end for end, count in counts.items() if count}


def _has_runs(codes: np.ndarray, pairs: int) -> bool:
    """Return whether a line begins or ends with a blank, is empty, or has two blanks in a row.

    Takes whole lines, [bytes], and the number of two-character line ends.
    """
    blank = codes <= ord(" ")
    return bool(blank[0]) or int(np.count_nonzero(blank[1:] & blank[:-1])) > pairs


class _Quotes:
    """Checks whether quotation marks follow RFC 4180: around whole fields, or doubled inside a field.

    ``open`` says whether the last block ended inside a field.
    """

    def __init__(self, delimiter: str) -> None:
        self._beside = np.zeros(256, bool)
        # The bytes of non-ASCII characters also occur inside fields.
        self._beside[list(f'"\r\n{delimiter if delimiter.isascii() else ""}'.encode())] = True
        self.open = False

    def fit(self, codes: np.ndarray) -> bool:
        """Return whether the quotation marks of a block of whole lines, [bytes], follow RFC 4180."""
        places = np.flatnonzero(codes == ord('"'))
        opening, closing = places[int(self.open) :: 2], places[int(not self.open) :: 2]
        self.open ^= bool(len(places) % 2)
        before, after = codes[opening[opening > 0] - 1], codes[closing[closing + 1 < len(codes)] + 1]
        return bool(self._beside[before].all() and self._beside[after].all())


def _line_at(path: Path, offset: int) -> int:
    line = 1
    with path.open("rb") as stream:
        while offset > 0 and (block := stream.read(min(_BLOCK, offset))):
            line, offset = line + block.count(b"\n"), offset - len(block)
    return line


def _text(delimiter: str) -> str:
    return "blanks" if delimiter == BLANKS else repr(delimiter)
