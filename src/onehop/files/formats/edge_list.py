"""Lists of edges as text: one edge per line.

==============================  =====================================================================
a line                          from
==============================  =====================================================================
source, destination             SNAP, OGB, ``networkx.write_edgelist(graph, path, data=False)``
and a weight                    SNAP's signed networks, ``networkx.write_weighted_edgelist``
and a weight and a time         SNAP's ratings: the time must be a number, and is not kept
and ``{'weight': 1.0}``         ``networkx.write_edgelist``; ``{}`` means that there is no weight
any of these                    KONECT, with its header: a bipartite network is refused; each edge is read
                                once, as it is written, also behind ``% sym``
==============================  =====================================================================

The first edge determines the form of all lines. Before it there may be one header: a line whose fields all
begin with a letter, an underscore or a quote. :mod:`onehop.files.formats.number_lines` defines fields and
comments.

The number of nodes is the largest node number plus one. OGB writes the number of nodes next to
``edge.csv.gz``, in ``num-node-list.csv.gz``; if this file exists, it is read.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import torch

from onehop.errors import FileFormatError
from onehop.files.formats import konect, number_lines
from onehop.files.formats.content import FileContent, as_float32, edges_from
from onehop.files.formats.number_lines import Fields

_HEADER_FIELD = re.compile(r"[A-Za-z_\"'][^,\t]*")
_NO_DATA = re.compile(rb"[ \t]*,?[ \t]*\{\}(?=[ \t\r]*\n)")
_WEIGHT = rb"([-+.0-9a-z]+)"
_WEIGHT_DATA = re.compile(rb"\{'weight': (?:%b|np\.\w+\(%b\))\}(?=[ \t\r]*\n)" % (_WEIGHT, _WEIGHT))
# networkx.write_adjlist and write_multiline_adjlist begin with comments, one of which is time.asctime().
_ADJACENCY = re.compile(rb"^[#%] GMT \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\s*$", re.MULTILINE)
_EDGES, _NODE_COUNT = "edge.csv", "num-node-list.csv"


def read(path: Path) -> FileContent:
    """Read the edges of a text file, which is compressed with gzip if its name ends in ``.gz``.

    Raises:
        FileFormatError: A line is wrong; the message has the number and the text of the first bad line.
    """
    _refuse_others(path)
    fields: Fields | None = None
    parts = []
    for block, line in _without_header(path):
        if b"{" in block:
            block = _without_dictionaries(path, block, line)
        if fields is None:
            fields = _fields(path, block, line)
        if fields is not None:
            numbers, values = number_lines.parse(path, block, fields, line)
            parts.append((numbers, as_float32(values[:, :1])))
    if fields is None:
        raise FileFormatError(
            f"{path}: there is no edge in it; expected lines with a source and a destination."
        )
    edges, weight = number_lines.join(parts)
    num_nodes = _num_nodes(path, int(edges.max()) + 1)
    return FileContent(
        edge_index=edges_from(path, edges[:, 0], edges[:, 1], (num_nodes, num_nodes)),
        size=(num_nodes, num_nodes),
        weight=torch.from_numpy(weight[:, 0]) if fields.values else None,
    )


def _refuse_others(path: Path) -> None:
    with number_lines.opened(path) as file:
        head = file.read(1 << 14)
    if _ADJACENCY.search(head):
        raise FileFormatError(
            f"{path}: expected one edge a line, got a list of adjacencies. Write it with "
            f"networkx.write_edgelist(graph, path, data=False)."
        )
    if konect.is_bipartite(head.splitlines()):
        raise FileFormatError(
            f"{path}: expected one set of nodes, got the header of a bipartite network, whose sources and "
            "destinations are numbered apart. Read it with onehop.ingest(path, out, bipartite=True)."
        )


def _without_header(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield the blocks of the file, with an empty line instead of the header."""
    at_start = True
    for block, line in number_lines.blocks(path):
        if at_start and (found := number_lines.take_first(block)) is not None:
            at_start = False
            _, raw, rest = found
            if all(map(_HEADER_FIELD.fullmatch, number_lines.fields_of(raw))):
                block = rest
        yield block, line


def _without_dictionaries(path: Path, block: bytes, first_line: int) -> bytes:
    """Return the block with numbers instead of the weight dictionaries that NetworkX wrote."""
    plain = _WEIGHT_DATA.sub(rb"\1\2", _NO_DATA.sub(b"", block))
    line = plain.count(b"\n", 0, plain.find(b"{"))
    if b"{" in plain:
        raise number_lines.bad_line(
            path,
            first_line + line,
            block.split(b"\n")[line],
            "a dictionary with a weight alone, as networkx.write_edgelist(graph, path, data=['weight']) "
            "writes it without braces",
        )
    return plain


def _fields(path: Path, block: bytes, first_line: int) -> Fields | None:
    """Return the fields of the first line; None if there is none so far."""
    found = number_lines.take_first(block)
    if found is None:
        return None
    index, raw, _ = found
    count = len(number_lines.fields_of(raw))
    if not 2 <= count <= 4:
        raise number_lines.bad_line(path, first_line + index, raw, "two node numbers and perhaps a weight")
    return Fields(2, count - 2)


def _num_nodes(path: Path, otherwise: int) -> int:
    """Return the number of nodes that OGB wrote next to the edges; ``otherwise`` if there is no such file."""
    beside = path.with_name(_NODE_COUNT + path.name.removeprefix(_EDGES))
    if not path.name.startswith(_EDGES) or not beside.exists():
        return otherwise
    counts: list[int] = []
    for block, line in number_lines.blocks(beside):
        counts += number_lines.parse(beside, block, Fields(1, 0), line)[0][:, 0].tolist()
    if len(counts) != 1:
        raise FileFormatError(
            f"{path}: expected one graph, but {beside.name} has the numbers of nodes of {len(counts)}, each "
            "numbered from 0. Load them with the package ogb."
        )
    return counts[0]
