"""The arrays of MATLAB files of version 5 to 7.

Format: MathWorks, "MAT-File Format" (version 5 level). A file is a header of 128 bytes and a sequence of
elements. Each element has a tag (type, bytes) and data, and may be compressed with zlib. SciPy's reader is
not used, because some damaged files make it crash. Here, every read is a slice whose length is checked.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onehop import config
from onehop.errors import FileFormatError

_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_STRUCT_CLASS, _SPARSE_CLASS = 2, 5
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX_FLAG = 0x800


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """A sparse matrix in compressed columns, as it is stored; its content has not been checked.

    ``indices`` are rows of entries, ``indptr`` says where each column's entries begin, and values are empty
    if the file omits them.
    """

    shape: tuple[int, int]
    indices: np.ndarray
    indptr: np.ndarray
    data: np.ndarray


class _Damaged(Exception):
    """Raised if the file is damaged; the message says how, without the path."""


Arrays = dict[str, np.ndarray | Sparse | None]


def read_arrays(path: Path) -> Arrays:
    """Return every array by name: dense and sparse matrices of real numbers, and None for anything else.

    The fields of a struct are named as in MATLAB: ``Problem.A``. Fields of nested structs are ignored.

    Raises:
        FileFormatError: The file has another version of the format, is damaged, or is larger than memory.
    """
    content = memoryview(path.read_bytes())
    mark = bytes(content[126:128])
    if len(content) < _HEADER_BYTES or mark not in (b"IM", b"MI"):
        raise FileFormatError(
            f"{path}: this is no MATLAB file of version 5 to 7, or its beginning is damaged. Fetch it again, "
            "or save it with save('-v7')."
        )
    order = "<" if mark == b"IM" else ">"
    if struct.unpack(order + "H", content[124:126])[0] != 0x0100:
        raise FileFormatError(f"{path}: expected a MATLAB file of version 5 to 7; save it with save('-v7').")
    arrays: Arrays = {}
    try:
        for kind, data in _elements(content[_HEADER_BYTES:], order):
            inner = _elements(_decompressed(data), order) if kind == _COMPRESSED else iter([(kind, data)])
            for inner_kind, inner_data in inner:
                if inner_kind == _MATRIX and inner_data:
                    arrays |= _named(inner_data, order)
    except (_Damaged, zlib.error) as error:
        raise FileFormatError(f"{path}: the file is damaged ({error}). Fetch it again.") from error
    return arrays


def _decompressed(data: memoryview) -> memoryview:
    stream = zlib.decompressobj()
    content = stream.decompress(data, config.physical_memory_bytes())
    if not stream.eof:
        raise _Damaged("its compressed data are not whole, or would not fit into memory")
    return memoryview(content)


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and data of the elements, one after the other."""
    place = 0
    while place < len(content):
        if len(content) - place < 8:
            raise _Damaged("it ends inside a tag")
        kind, size = struct.unpack_from(order + "II", content, place)
        if kind >> 16:
            # Up to four bytes of data are in the tag itself; its first half then has both numbers.
            kind, size, begin, place = kind & 0xFFFF, kind >> 16, place + 4, place + 8
            if size > 4:
                raise _Damaged(f"a short element of {size} bytes")
        else:
            begin = place + 8
            # Elements begin at multiples of eight bytes, except after compressed elements.
            place = begin + size + (0 if kind == _COMPRESSED else -size % 8)
        if begin + size > len(content):
            raise _Damaged("it ends inside an element")
        yield kind, content[begin : begin + size]


def _named(content: memoryview, order: str) -> Arrays:
    """Return a matrix element by its name; for a struct, its fields."""
    kind, shape, name, parts = _described(content, order)
    if kind != _STRUCT_CLASS or shape != [1, 1]:
        return {name: _array(kind, shape, parts, order)}
    width = _numbers(next(parts, None), order)
    _, names = next(parts, (0, memoryview(b"")))
    if len(width) != 1 or width[0] <= 0:
        raise _Damaged("a struct without a proper description")
    fields: Arrays = {}
    for begin in range(0, len(names), int(width[0])):
        field = f"{name}.{_text(names[begin : begin + int(width[0])])}"
        inner, data = next(parts, (0, memoryview(b"")))
        if inner != _MATRIX:
            raise _Damaged("a struct is not whole")
        if data:
            inner_kind, inner_shape, _, inner_parts = _described(data, order)
            fields[field] = _array(inner_kind, inner_shape, inner_parts, order)
    return fields


def _described(
    content: memoryview, order: str
) -> tuple[int, list[int], str, Iterator[tuple[int, memoryview]]]:
    """Return the class (0 if complex), shape and name of a matrix element, and the elements after these."""
    parts = _elements(content, order)
    flags = _numbers(next(parts, None), order)
    shape = _numbers(next(parts, None), order)
    _, name = next(parts, (0, memoryview(b"")))
    if len(flags) != 2 or flags.dtype.kind != "u" or shape.dtype.kind != "i" or (shape < 0).any():
        raise _Damaged("an array without a proper description")
    kind, is_complex = int(flags[0]) & 0xFF, bool(int(flags[0]) & _COMPLEX_FLAG)
    return 0 if is_complex else kind, shape.tolist(), _text(name), parts


def _array(
    kind: int, shape: list[int], parts: Iterator[tuple[int, memoryview]], order: str
) -> np.ndarray | Sparse | None:
    """Return a dense or sparse matrix of real numbers; None for anything else."""
    if len(shape) != 2 or (kind != _SPARSE_CLASS and kind not in _CLASSES):
        return None
    rows, columns = shape
    if kind == _SPARSE_CLASS:
        indices, indptr = _numbers(next(parts, None), order), _numbers(next(parts, None), order)
        return Sparse((rows, columns), indices, indptr, _numbers(next(parts, None), order))
    values = _numbers(next(parts, None), order)
    if len(values) != rows * columns:
        raise _Damaged(f"{len(values)} numbers in an array of {rows} x {columns}")
    # Numbers may be stored in another type than the array's own type.
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(_CLASSES[kind]).reshape(columns, rows).T


def _text(name: memoryview) -> str:
    return bytes(name).rstrip(b"\0").decode("latin-1")


def _numbers(element: tuple[int, memoryview] | None, order: str) -> np.ndarray:
    if element is None:
        raise _Damaged("an array is not whole")
    kind, data = element
    if kind not in _NUMBERS:
        raise _Damaged(f"numbers of the unknown type {kind}")
    dtype = np.dtype(order + _NUMBERS[kind])
    if len(data) % dtype.itemsize:
        raise _Damaged("half a number")
    return np.frombuffer(data, dtype=dtype)
