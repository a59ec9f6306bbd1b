"""The folder of an ingest on the way: what a later run goes on from, and whose it is."""

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onehop.errors import FileFormatError
from onehop.storage import writing
from onehop.streaming.from_file.request import Request

LOGGER = logging.getLogger("onehop")

# Changes when what the steps leave behind does.
_VERSION = 2


@contextlib.contextmanager
def working(out: Path, request: Request) -> Iterator["Work"]:
    """The folder while a run is at it; removed when it is of no use to a later one."""
    work = Work(out, request)
    work.begin()
    try:
        yield work
    except FileFormatError:
        work.of_use = False  # a later run would refuse the file too
        raise
    finally:
        if not work.of_use:
            work.remove()


class Work:
    """The folder of what is on the way, with a note of the request that it belongs to.

    Args:
        out: The result.
        request: The request.

    Attributes:
        folder: The folder.
        of_use: Whether a later run can go on from it.
    """

    def __init__(self, out: Path, request: Request) -> None:
        self.folder = out.with_name(out.name + ".ingest")
        self._note, self._request = self.folder / "request.json", request
        self._what = self._stamped()
        self.of_use = False

    def begin(self) -> None:
        """Makes the folder, unless there is one of the same request to go on from.

        Raises:
            StorageError: It cannot be written.
        """
        if self.folder.exists():
            if self._noted() == self._what:
                LOGGER.info("%s: going on from what an earlier run has done.", self.folder)
                return
            LOGGER.warning("%s belongs to another request or another file; it is begun anew.", self.folder)
            self.remove()
        with writing("out", self.folder):
            self.folder.mkdir(parents=True)
            self._note.write_text(json.dumps(self._what))

    def confirm(self) -> None:
        """Looks whether the files are still those that the run began with.

        Raises:
            FileFormatError: One was written to in the meantime.
        """
        if self._stamped() != self._what:
            raise FileFormatError(
                f"{self._request.path}: it was written to while it was read. Call again when that is done."
            )

    def note_columns(self, left_out: tuple[str, ...]) -> None:
        """Says which columns were not read."""
        if left_out:
            LOGGER.warning(
                "%s: columns that are left out: %s. weight and edge_type name those to keep.",
                self._request.path,
                ", ".join(left_out),
            )

    def remove(self) -> None:
        """Removes the folder."""
        with writing("out", self.folder):
            shutil.rmtree(self.folder)

    def _noted(self) -> Any:
        try:
            return json.loads(self._note.read_text())
        except (OSError, ValueError):
            return None

    def _stamped(self) -> dict[str, Any]:
        """The request with sizes and times of change of its files, as JSON gives them back."""
        request = self._request
        stamps = [[path.stat().st_size, path.stat().st_mtime_ns] for path in request.files()]
        found: dict[str, Any] = json.loads(json.dumps([_VERSION, request.as_json(), stamps]))
        return found
