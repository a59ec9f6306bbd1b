"""Prints the notes of a release: its section of CHANGELOG.md.

    python scripts/release_notes.py 0.1.0

The release workflow calls it with the version of its tag.
"""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(text: str, version: str) -> str:
    """The section of a version, without its heading; SystemExit if there is none."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no section {version}: rename [Unreleased] before the release.")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(notes(CHANGELOG.read_text(), sys.argv[1]))
