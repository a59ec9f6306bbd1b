"""A folder of intermediate data, with a note of the request to which it belongs."""

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
"""The file in a folder that says to which request the folder belongs."""


def features_of(x: object, graph: StoredGraph) -> MatrixFile:
    """Return the file of features; raise an ArgumentError if it does not have one row per node."""
    features = MatrixFile.open("x", x)
    if features.rows != graph.num_src:
        raise ArgumentError(
            f"x: expected a row for each of the {graph.num_src} nodes, and {features.path} has "
            f"{features.rows}."
        )
    return features


def begin(work: Path, request: Any) -> None:
    """Create a folder, unless a folder of the same ``request`` exists, from which the run then continues.

    Raises:
        ArgumentError: Something of this name exists that was not created by a run.
        StorageError: The disk is full, or the location cannot be written.
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
            pass  # of no use, like the folder of another request
        with writing("out", work):
            _remove(work)
    with writing("out", work):
        work.mkdir(parents=True)
        note.write_text(json.dumps(request))


def inputs_of(graph: StoredGraph, features: MatrixFile) -> list[object]:
    """Return :func:`inputs_now`; raise a FileFormatError if the graph has changed since it was opened."""
    inputs = inputs_now(graph, features)
    if inputs[0] != graph.identity:
        raise FileFormatError(f"graph: {graph.folder} was written to since it was opened. Open it again.")
    return inputs


def inputs_now(graph: StoredGraph, features: MatrixFile) -> list[object]:
    """Return the sizes and modification times of the inputs, ready for JSON."""
    return [StoredGraph.open(graph.folder).identity, stamp(features)]


def confirm(work: Path, graph: StoredGraph, features: MatrixFile, begun: list[object]) -> None:
    """Remove a run's folder and raise a FileFormatError if the inputs changed since the run began."""
    if inputs_now(graph, features) != begun:
        with writing("out", work):
            _remove(work)
        raise FileFormatError(
            f"graph, x: {graph.folder} or {features.path} was written to while it was read. Call again when "
            "it is done."
        )


def finish(work: Path, result: Path, goal: Path) -> None:
    """Move a file from the folder to its final place, and remove the folder."""
    with writing("out", goal):
        # This comes first, because no run can continue from a folder without its result. The note stays to
        # identify the folder, and takes no space.
        os.truncate(work / NOTE, 0)
        result.replace(goal)
        _remove(work)


def stamp(file: MatrixFile) -> list[int | str]:
    """Return the path, size and modification time of a file."""
    status = file.path.stat()
    return [str(file.path.resolve()), status.st_size, status.st_mtime_ns]


def _remove(work: Path) -> None:
    """Remove a folder, its note last, so that the rest of it can still be recognised as a run's folder."""
    for each in [each for each in work.iterdir() if each.name != NOTE]:
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    shutil.rmtree(work)
