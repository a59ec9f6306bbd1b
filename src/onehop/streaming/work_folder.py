"""A folder of what is on the way to a result, with a note of the request that it belongs to."""

import json
import shutil
from pathlib import Path
from typing import Any

from onehop.errors import FileFormatError
from onehop.graph.graph import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.storage import writing

_NOTE = "request.json"


def begin(work: Path, told: Any) -> None:
    """Makes a folder, unless there is one of the same request, ``told``, to go on from."""
    note = work / _NOTE
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


def inputs_now(graph: StoredGraph, features: MatrixFile) -> list[object]:
    """Sizes and times of change of the inputs, ready for JSON."""
    return [StoredGraph.open(graph.folder).identity, stamp(features)]


def confirm(work: Path, graph: StoredGraph, features: MatrixFile, begun: list[object]) -> None:
    """Looks whether the inputs are still those that a run began with; if not, removes its folder.

    Raises:
        FileFormatError: One was written to in the meantime.
    """
    if inputs_now(graph, features) != begun:
        with writing("out", work):
            shutil.rmtree(work)
        raise FileFormatError(
            f"graph, x: {graph.folder} or {features.path} was written to while it was read. Call again when "
            "it is done."
        )


def finish(work: Path, made: Path, goal: Path) -> None:
    """Has a file in the folder take its place, and removes the folder."""
    with writing("out", goal):
        # First, for nothing can go on from a folder that has lost its result.
        (work / _NOTE).unlink()
        made.replace(goal)
        shutil.rmtree(work)


def stamp(file: MatrixFile) -> list[int | str]:
    """The path, size and time of change of a file."""
    told = file.path.stat()
    return [str(file.path.resolve()), told.st_size, told.st_mtime_ns]
