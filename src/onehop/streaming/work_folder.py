"""A folder of what is on the way to a result, with a note of the request that it belongs to."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from onehop.errors import ArgumentError, FileFormatError
from onehop.graph.graph import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.storage import writing

NOTE = "request.json"
"""The file of a folder that says which request it belongs to."""


def features_of(x: object, graph: StoredGraph) -> MatrixFile:
    """The file of features, with a row for each node; raises an ArgumentError if it has another number."""
    features = MatrixFile.open("x", x)
    if features.rows != graph.num_src:
        raise ArgumentError(
            f"x: expected a row for each of the {graph.num_src} nodes, and {features.path} has "
            f"{features.rows}."
        )
    return features


def begin(work: Path, request: Any) -> None:
    """Makes a folder, unless there is one of the same ``request`` to go on from.

    Raises:
        ArgumentError: There is something of that name that no run has made.
        StorageError: The disk is full, or the place cannot be written.
    """
    note = work / NOTE
    with writing("out", work):
        others = work.exists() and not note.exists() and (not work.is_dir() or any(work.iterdir()))
    if others:
        raise ArgumentError(
            f"out: {work} is for what is on the way to the result, and holds other files. Move them, or give "
            "another out."
        )
    if work.exists():
        try:
            if json.loads(note.read_text()) == request:
                return
        except (OSError, ValueError):
            pass  # of no use, as one of another request is
        with writing("out", work):
            _remove(work)
    with writing("out", work):
        work.mkdir(parents=True)
        note.write_text(json.dumps(request))


def inputs_of(graph: StoredGraph, features: MatrixFile) -> list[object]:
    """As :func:`inputs_now`; raises a FileFormatError if the graph is not the one that was opened."""
    inputs = inputs_now(graph, features)
    if inputs[0] != graph.identity:
        raise FileFormatError(f"graph: {graph.folder} was written to since it was opened. Open it again.")
    return inputs


def inputs_now(graph: StoredGraph, features: MatrixFile) -> list[object]:
    """Sizes and times of change of the inputs, ready for JSON."""
    return [StoredGraph.open(graph.folder).identity, stamp(features)]


def confirm(work: Path, graph: StoredGraph, features: MatrixFile, begun: list[object]) -> None:
    """Removes a run's folder and raises a FileFormatError, if the inputs are not those that it began with."""
    if inputs_now(graph, features) != begun:
        with writing("out", work):
            _remove(work)
        raise FileFormatError(
            f"graph, x: {graph.folder} or {features.path} was written to while it was read. Call again when "
            "it is done."
        )


def finish(work: Path, result: Path, goal: Path) -> None:
    """Has a file in the folder take its place, and removes the folder."""
    with writing("out", goal):
        # First, because nothing can go on from a folder without its result. The note stays, to tell whose
        # folder it is, and takes no room.
        os.truncate(work / NOTE, 0)
        result.replace(goal)
        _remove(work)


def stamp(file: MatrixFile) -> list[int | str]:
    """The path, size and time of change of a file."""
    status = file.path.stat()
    return [str(file.path.resolve()), status.st_size, status.st_mtime_ns]


def _remove(work: Path) -> None:
    """Removes a folder, its note last: what is left of it is still known as a folder of a run."""
    for each in [each for each in work.iterdir() if each.name != NOTE]:
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    shutil.rmtree(work)
