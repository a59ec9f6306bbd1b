"""The files of results: JSON with the machine and the versions on which they were measured."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onehop.bench.stamp import stamp
from onehop.storage import write_text


def write_json(path: Path | None, command: str, content: Mapping[str, Any]) -> None:
    """Write measurements, with the machine and the versions on which they were made.

    Args:
        path: The file; missing parent folders are created. None means that nothing is written.
        command: The command that measured, for the key ``command``.
        content: Further keys.

    Raises:
        StorageError: The file cannot be written; an earlier file stays unchanged.
    """
    if path is None:
        return
    document = {"command": command, "stamp": stamp(), **content}
    write_text("json", path, json.dumps(document, indent=2) + "\n")
