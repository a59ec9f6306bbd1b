"""The files that results are written to: JSON with the machine and the versions they were measured on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onehop.bench.stamp import stamp
from onehop.storage import write_text


def write_json(path: Path | None, command: str, content: Mapping[str, Any]) -> None:
    """Writes what was measured, with the machine and the versions it was measured on.

    Args:
        path: The file; folders above it are made. None: nothing is written.
        command: What measured, as the key ``command`` has it.
        content: Further keys.

    Raises:
        StorageError: The file cannot be written; an earlier one stays as it was.
    """
    if path is None:
        return
    document = {"command": command, "stamp": stamp(), **content}
    write_text("json", path, json.dumps(document, indent=2) + "\n")
