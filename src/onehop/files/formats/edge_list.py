"""Lists of edges as text: one edge a line, source and destination and perhaps a weight.

The first line may be a header. :mod:`onehop.files.formats.number_lines` says what else lines may be.
"""

import re
from pathlib import Path

import torch

from onehop.errors import FileFormatError
from onehop.files.formats import number_lines
from onehop.files.formats.content import FileContent, edges_from

_HEADER_FIELD = re.compile(r"[A-Za-z_\"'][^,\t]*")


def read(path: Path) -> FileContent:
    """The edges of a text file, compressed with gzip where its name ends in ``.gz``.

    Every line holds a source, a destination and, if the first edge has one, a weight. The graph has one node
    more than the largest number.

    Raises:
        FileFormatError: With the number and the text of the first bad line.
    """
    parts: list[number_lines.Columns] = []
    columns = 0
    for block, line in number_lines.blocks(path):
        if columns == 0:
            columns, block = _look_at_start(path, block, line)
        if columns:
            parts.append(number_lines.parse(path, block, columns, line))
    source, target, weight = number_lines.join(parts)
    if len(source) == 0:
        raise FileFormatError(
            f"{path}: there is no edge in it; expected lines with a source and a destination."
        )
    num_nodes = int(max(source.max(), target.max())) + 1
    return FileContent(
        edge_index=edges_from(path, source, target, (num_nodes, num_nodes)),
        size=(num_nodes, num_nodes),
        weight=None if weight is None else torch.from_numpy(weight),
    )


def _look_at_start(path: Path, block: bytes, first_line: int) -> tuple[int, bytes]:
    """The number of columns, 0 while there was no edge yet, and the block with its header blanked out."""
    lines = block.split(b"\n")
    for index, raw in enumerate(lines):
        fields = number_lines.fields_of(raw)
        if not fields:
            continue
        if all(_HEADER_FIELD.fullmatch(field) for field in fields):
            lines[index] = b""
            after = b"\n".join(lines[index + 1 :])
            columns = next(
                (len(f) for f in map(number_lines.fields_of, after.split(b"\n", 64)[:64]) if f), len(fields)
            )
            block = b"\n".join(lines)
        else:
            columns = len(fields)
        if columns not in (2, 3):
            raise number_lines.bad_line(
                path, first_line + index, raw, "two node numbers and perhaps a weight"
            )
        return columns, block
    return 0, block
