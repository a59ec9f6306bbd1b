"""A one-dimensional .npy file that is written piece by piece and gets its length at the end."""

from pathlib import Path

import numpy as np

from onehop.graph.checksums import Checksums
from onehop.storage import write_all, writing


class ArrayFile:
    """Writes numbers one after the other to a new file.

    Attributes:
        count: How many numbers have been written.
        checksums: The checksums of the numbers.
    """

    def __init__(self, path: Path, dtype: np.dtype | type) -> None:
        self._path, self._dtype, self.count = path, np.dtype(dtype), 0
        self.checksums = Checksums()
        with writing("folder", path):
            # The file is unbuffered, because a buffer would report a full disk only when the file is closed.
            self._file = path.open("wb", buffering=0)
        try:
            self._write(_header(0, self._dtype))
        except BaseException:
            self._file.close()
            raise

    def put(self, values: np.ndarray) -> None:
        """Append numbers, [n], converted to the file's dtype; raises a StorageError if the disk is full."""
        flat = np.ascontiguousarray(values, dtype=self._dtype)
        data = flat.view(np.uint8).data
        self._write(data)
        self.checksums.add(data)
        self.count += len(flat)

    def finish(self) -> None:
        """Write the length into the header, and end the checksums' last block; may raise as :meth:`put`."""
        self.checksums.finish()
        self._file.seek(0)
        self._write(_header(self.count, self._dtype))

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        with writing("folder", self._path, len(view)):
            write_all(self._file, view)

    def __enter__(self) -> "ArrayFile":
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the file; :meth:`finish` has set its length."""
        self._file.close()


def _header(count: int, dtype: np.dtype) -> bytes:
    """Return a .npy header with the same length for every count, so that it can be rewritten at the end."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({count},), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"
