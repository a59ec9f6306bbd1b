"""The files of results: JSON with the circumstances in which they were measured."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onehop.bench.stamp import stamp
from onehop.errors import StorageError
from onehop.storage import STANDARD_OUTPUT, write_text

SCHEMA = 1
"""The number of the JSON's form; it grows when a key disappears or changes its meaning."""


def write_json(
    path: Path | None,
    command: str,
    content: Mapping[str, Any],
    rounds: int | None = None,
    complete: bool = True,
) -> None:
    """Write measurements, with the circumstances in which they were made.

    The key ``stamp`` has what :func:`onehop.bench.stamp.stamp` returns, and as ``rounds`` the fewest and the
    most rounds of the times in ``content``, such as ``[5, 9]``.

    Args:
        path: The file; missing parent folders are created. "-" is standard output, None means nothing.
        command: The command that measured, for the key ``command``.
        content: Further keys.
        rounds: Rounds that were requested, for times that do not name theirs; None if there were no rounds.
        complete: Whether these are all results; otherwise nothing is written to standard output yet.

    Raises:
        StorageError: The file cannot be written, and an earlier file stays unchanged; or standard output is
            closed.
    """
    if path is None or (path == STANDARD_OUTPUT and not complete):
        return
    counts = [*_rounds(content)] or ([] if rounds is None else [rounds])
    least_and_most = [min(counts), max(counts)] if counts else None
    stamped = {**stamp(), "rounds": least_and_most}
    text = json.dumps({"schema": SCHEMA, "command": command, "stamp": stamped, **content}, indent=2) + "\n"
    if path == STANDARD_OUTPUT:
        if sys.stdout is None or sys.stdout.closed:
            raise StorageError("--json: standard output is closed; give a file.")
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_text("--json", path, text)


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
