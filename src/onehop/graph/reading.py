"""The way of :meth:`onehop.Graph.load` to the readers of files, which lie above it and register here."""

import os
from collections.abc import Callable

from torch import Tensor

# Reads a file: [2, E], int64, the edges, and (num_src, num_dst).
Reader = Callable[[str | os.PathLike[str]], tuple[Tensor, tuple[int, int]]]

# ``import onehop`` imports onehop.files, so there is one as soon as there is a Graph to load.
_readers: list[Reader] = []


def register(reader: Reader) -> None:
    """Makes ``reader`` what :func:`read` calls, in place of an earlier one."""
    _readers[:] = [reader]


def read(path: str | os.PathLike[str]) -> tuple[Tensor, tuple[int, int]]:
    """The edges of a file, [2, E], int64, and (num_src, num_dst); see :func:`onehop.files.read`."""
    return _readers[0](path)
