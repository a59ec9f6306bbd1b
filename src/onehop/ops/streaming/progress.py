"""An unfinished result: a file next to the result's path, with a note of the progress."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onehop.errors import FileFormatError
from onehop.ops.streaming.matrix_file import MatrixFile, create, writing


class Contents(NamedTuple):
    """Fingerprints of the inputs that a run has read.

    Attributes:
        panels: The fingerprint of each panel of features.
        tiles: The number of tiles of the first panel that ``edges`` covers.
        edges: The fingerprint of the edges and weights of these tiles.
    """

    panels: list[int]
    tiles: int
    edges: int


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The state that an earlier run left: plan, number of written tiles, fingerprints of inputs, file."""

    plan: list[int]
    done: int
    read: Contents
    file: MatrixFile


class Unfinished:
    """The unfinished file next to the result, and its note.

    Args:
        out: The path of the result.
        what: Everything that the result depends on, as JSON data. A run resumes only if the note contains the
            same data.
    """

    def __init__(self, out: Path, what: dict[str, Any]) -> None:
        self.out = out
        self.path = out.with_name(out.name + ".partial")
        self._note = out.with_name(out.name + ".progress.json")
        self._what = what
        self._plan: list[int] = []
        self.done = 0
        """The number of tiles that have been written, in the order of the plan."""
        self.read = Contents([], 0, 0)
        """The fingerprints of the inputs that an earlier run read for these tiles."""

    def plan(self) -> list[int] | None:
        """Return the numbers of the plan of an earlier run of the same result; None without one."""
        earlier = self._earlier()
        return None if earlier is None else earlier.plan

    def begin(
        self, plan: list[int], rows: int, columns: int, dtype: np.dtype, by_columns: bool
    ) -> MatrixFile:
        """Return the file to write to; ``done`` is the number of the first tile to write.

        Raises:
            StorageError: The disk has no space for the result, or the folder is not writable.
        """
        self._plan = plan
        earlier = self._earlier()
        shape = (rows, columns, dtype)
        if (
            earlier is not None
            and earlier.plan == plan
            and (earlier.file.rows, earlier.file.columns, earlier.file.dtype) == shape
        ):
            self.done, self.read = earlier.done, earlier.read
            return earlier.file
        self.begin_anew()
        try:
            return create(self.path, rows, columns, dtype, by_columns)
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise

    def begin_anew(self) -> None:
        """Discards the state of an earlier run."""
        with writing(self.path):
            self._note.unlink(missing_ok=True)
        self.done, self.read = 0, Contents([], 0, 0)

    def _earlier(self) -> _Earlier | None:
        """The state that an earlier run left; None if there is nothing to resume."""
        try:
            note = json.loads(self._note.read_text())
            if note["what"] != self._what or note.pop("digest") != _digest(note):
                return None
            read = Contents(note["panels"], *note["edges"])
            return _Earlier(note["plan"], note["done"], read, MatrixFile.open("out", self.path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, FileFormatError):
            return None

    def note(self, done: int, read: Contents) -> None:
        """Note how many tiles are on the disk, and fingerprints of the inputs that were read for them."""
        note = {
            "what": self._what,
            "plan": self._plan,
            "done": done,
            "panels": read.panels,
            "edges": [read.tiles, read.edges],
        }
        with writing(self.path):
            beside = self._note.with_name(self._note.name + ".tmp")
            beside.write_text(json.dumps({**note, "digest": _digest(note)}))
            beside.replace(self._note)

    def finish(self) -> None:
        """Move the finished file to the result's path.

        Raises:
            StorageError: The disk is full, or the path is not writable.
        """
        with writing(self.out):
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            self.path.replace(self.out)
            self._note.unlink(missing_ok=True)


def _digest(note: dict[str, Any]) -> str:
    """Return a checksum of the note; a damaged note could claim more tiles than were written."""
    return hashlib.sha256(json.dumps(note, sort_keys=True).encode()).hexdigest()
