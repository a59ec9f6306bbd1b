"""Graphs from files.

============================  =============================================================================
name ends in                  what it is
============================  =============================================================================
``.mtx``                      MatrixMarket, :mod:`onehop.files.formats.matrix_market`
``.npz``                      a SciPy sparse matrix, or a graph with features and labels in one of two
                              layouts, :mod:`onehop.files.formats.npz`
``.mat``                      MATLAB up to version 7 with a sparse matrix, :mod:`onehop.files.formats.mat`
``.txt``, ``.csv``, ``.tsv``  one edge a line: source, destination and perhaps a weight,
                              :mod:`onehop.files.formats.edge_list`
============================  =============================================================================

Text may be compressed with gzip: ``.mtx.gz``, ``.txt.gz``, ``.csv.gz``, ``.tsv.gz``.

In matrices, a row is a destination and a column is a source, as in :meth:`onehop.Graph.from_scipy`. Values
are weights unless all of them are 1. :func:`onehop.datasets.from_file` loads a file as a data set.
"""

import os
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from onehop.errors import ArgumentError, FileFormatError
from onehop.files.formats import edge_list, mat, matrix_market, npz
from onehop.files.formats.content import FileContent
from onehop.graph import reading
from onehop.storage import check_is_file

__all__ = ["FileContent", "read"]

_READERS: dict[str, Callable[[Path], FileContent]] = {
    **dict.fromkeys((".mtx", ".mtx.gz"), matrix_market.read),
    ".npz": npz.read,
    ".mat": mat.read,
    **dict.fromkeys((".txt", ".csv", ".tsv", ".txt.gz", ".csv.gz", ".tsv.gz"), edge_list.read),
}


def read(path: str | os.PathLike[str], key: str | None = None) -> FileContent:
    """Read a graph from a file; edges are in the order in which they are stored.

    Nothing is unpickled, and every node number is checked.

    Args:
        path: The file; its name determines the format.
        key: Name of the matrix to read from a ``.mat`` file, for example ``"Problem.A"``; None means the rule
            of :mod:`onehop.files.formats.mat`.

    Raises:
        ArgumentError: ``key`` is given for another format, or the file has no sparse matrix of this name.
        FileNotFoundError: The file does not exist.
        FileFormatError: The file is truncated, malformed or of an unknown kind.

    Examples:
        >>> import onehop, tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     print("0,1,5", file=file, flush=True)  # source, destination, weight
        ...     content = onehop.files.read(file.name)
        >>> content.edge_index.tolist(), content.weight.tolist()
        ([[0], [1]], [5.0])
    """
    file = Path(path)
    ending = "".join(suffix.lower() for suffix in file.suffixes[-2:]) if file.suffix.lower() == ".gz" else ""
    reader = _READERS.get(ending or file.suffix.lower())
    if file.is_dir():
        raise FileFormatError(
            f"{file}: expected a file, got a folder. Graph.open opens the folder of a stored graph, and "
            "onehop.ingest reads one of Parquet files."
        )
    check_is_file(file)
    if reader is None:
        raise FileFormatError(f"{file}: expected a file whose name ends in one of {', '.join(_READERS)}.")
    if reader is mat.read:
        return mat.read(file, key)
    if key is not None:
        raise ArgumentError(f"key: it names a matrix of a .mat file, got {key!r} for {file}; omit it.")
    return reader(file)


def _edges(path: str | os.PathLike[str], key: str | None) -> tuple[Tensor, tuple[int, int]]:
    content = read(path, key)
    return content.edge_index, content.size


# Graph.load is in a lower package, and calls the readers through this registration.
reading.register(_edges)
