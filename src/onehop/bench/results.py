"""The files of results: JSON with the circumstances in which they were measured."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onehop.bench.stamp import stamp
from onehop.storage import write_text


def write_json(
    path: Path | None, command: str, content: Mapping[str, Any], rounds: int | None = None
) -> None:
    """Write measurements, with the circumstances in which they were made.

    The key ``stamp`` has what :func:`onehop.bench.stamp.stamp` returns, and as ``rounds`` the fewest and the
    most rounds of the times in ``content``, such as ``[5, 9]``.

    Args:
        path: The file; missing parent folders are created. None means that nothing is written.
        command: The command that measured, for the key ``command``.
        content: Further keys.
        rounds: Rounds that were requested, for times that do not name theirs; None if there were no rounds.

    Raises:
        StorageError: The file cannot be written; an earlier file stays unchanged.
    """
    if path is None:
        return
    counts = [*_rounds(content)] or ([] if rounds is None else [rounds])
    least_and_most = [min(counts), max(counts)] if counts else None
    document = {"command": command, "stamp": {**stamp(), "rounds": least_and_most}, **content}
    write_text("json", path, json.dumps(document, indent=2) + "\n")


def _rounds(value: Any) -> Iterator[int]:
    """Yield every number under a key ``rounds``."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "rounds" and isinstance(inner, int):
                yield inner
            else:
                yield from _rounds(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _rounds(inner)
