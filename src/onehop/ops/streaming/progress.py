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
        self._plan: list[int] = []
        self.done = 0
        """So many tiles have been written, in the order of the plan."""

    def plan(self) -> list[int] | None:
        """The numbers of the plan that an earlier run of the same followed; None without one."""
        found = self._found()
        return None if found is None else found[0]

    def begin(
        self, plan: list[int], rows: int, columns: int, dtype: np.dtype, by_columns: bool
    ) -> MatrixFile:
        """The file to write to; ``done`` says from which tile on.

        Raises:
            StorageError: The disk has no room for the result.
        """
        self._plan = plan
        found = self._found()
        if found is not None and found[0] == plan:
            self.done = found[1]
            return found[2]
        self._note.unlink(missing_ok=True)
        try:
            return create(self.path, rows, columns, dtype, by_columns)
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise

    def _found(self) -> tuple[list[int], int, MatrixFile] | None:
        """Plan, tiles done and file of an earlier run of the same; None if there is nothing to go on from."""
        try:
            note = json.loads(self._note.read_text())
            plan, done = [int(number) for number in note["plan"]], int(note["done"])
            if note["what"] == self._what:
                return plan, done, MatrixFile.open("out", self.path)
        except (OSError, ValueError, KeyError, TypeError, FileFormatError):
            return None
        return None

    def note(self, done: int) -> None:
        """Notes that so many tiles are on the disk."""
        with writing(self.path, 0):
            beside = self._note.with_name(self._note.name + ".tmp")
            beside.write_text(json.dumps({"what": self._what, "plan": self._plan, "done": done}))
            beside.replace(self._note)

    def finish(self) -> None:
        """The result takes its place."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(self.out)
        with contextlib.suppress(FileNotFoundError):
            self._note.unlink()
