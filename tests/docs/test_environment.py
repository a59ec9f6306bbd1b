"""The list of environment variables in the documents is complete."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_variable_is_described() -> None:
    code = (ROOT / "src" / "onehop" / "config.py").read_text()
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()
    read = set(re.findall(r"\"(ONEHOP_\w+)\"", code))
    assert read
    assert read == set(re.findall(r"^\| `(ONEHOP_\w+)`", page, flags=re.MULTILINE))
