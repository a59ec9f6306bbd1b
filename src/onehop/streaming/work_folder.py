"""A folder of what is on the way to a result, with a note of the request that it belongs to."""

import json
import shutil
from pathlib import Path
from typing import Any

from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.storage import writing


def begin(work: Path, told: Any) -> None:
    """Makes a folder, unless there is one of the same request, ``told``, to go on from."""
    note = work / "request.json"
    if work.exists():
        try:
            if json.loads(note.read_text()) == told:
                return
        except (OSError, ValueError):
            pass  # of no use, as one of another request is
        with writing("out", work):
            shutil.rmtree(work)
    with writing("out", work):
        work.mkdir(parents=True)
        note.write_text(json.dumps(told))


def stamp(file: MatrixFile) -> list[int | str]:
    """The path, size and time of change of a file."""
    told = file.path.stat()
    return [str(file.path.resolve()), told.st_size, told.st_mtime_ns]
