"""The link from :meth:`onehop.Graph.load` to the file readers of a higher layer, which register here."""

import os
from collections.abc import Callable

from torch import Tensor

# A function of a file and the name of a matrix in it; returns the edges, [2, E], int64, and (num_src,
# num_dst).
Reader = Callable[[str | os.PathLike[str], str | None], tuple[Tensor, tuple[int, int]]]

# ``import onehop`` imports onehop.files, so there is a reader before any graph is loaded.
_readers: list[Reader] = []


def register(reader: Reader) -> None:
    """Set the function that :func:`read` calls."""
    _readers[:] = [reader]


def read(path: str | os.PathLike[str], key: str | None) -> tuple[Tensor, tuple[int, int]]:
    """Return the edges of a file, [2, E], int64, and (num_src, num_dst); see :func:`onehop.files.read`."""
    return _readers[0](path, key)
