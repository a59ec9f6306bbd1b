"""Files of the repository that a script makes, and whose text a test compares."""

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def update(texts: Mapping[Path, str], script: str, check: bool) -> None:
    """Writes files, by path; with ``check``, raises SystemExit if one differs."""
    for path, text in texts.items():
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path.relative_to(ROOT)} is out of date: python scripts/{script}.py")
