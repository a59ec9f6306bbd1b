"""A result in the making: written beside its place, with a note of how far it is, and renamed when whole."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from onehop.errors import FileFormatError
from onehop.ops.streaming.matrix_file import MatrixFile, create, writing


class Unfinished:
    """The file beside the result, and its note.

    Args:
        out: Where the result will be.
        what: All that the result depends on, ready for JSON. A note of something else is not gone on from.
    """

    def __init__(self, out: Path, what: dict[str, Any]) -> None:
        self.out = out
        self.path = out.with_name(out.name + ".partial")
        self._note = out.with_name(out.name + ".progress.json")
        self._what = what
        self.done = 0
        """So many tiles have been written, in the order of the plan."""

    def begin(self, rows: int, columns: int, dtype: np.dtype, by_columns: bool) -> MatrixFile:
        """The file to write to; ``done`` says from which tile on.

        Raises:
            StorageError: The disk has no room for the result.
        """
        try:
            note = json.loads(self._note.read_text())
            if note["what"] == self._what:
                found = MatrixFile.open("out", self.path)
                self.done = int(note["done"])
                return found
        except (OSError, ValueError, KeyError, TypeError, FileFormatError):
            pass  # nothing to go on from: a new file is begun
        self._note.unlink(missing_ok=True)
        try:
            return create(self.path, rows, columns, dtype, by_columns)
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise

    def note(self, done: int) -> None:
        """Notes that so many tiles are on the disk."""
        with writing(self.path, 0):
            beside = self._note.with_name(self._note.name + ".tmp")
            beside.write_text(json.dumps({"what": self._what, "done": done}))
            beside.replace(self._note)

    def finish(self) -> None:
        """The result takes its place."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(self.out)
        with contextlib.suppress(FileNotFoundError):
            self._note.unlink()
