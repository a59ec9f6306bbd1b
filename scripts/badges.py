"""Draws the badges of the README: the licence, and the versions that ``make matrix`` found to work.

    python scripts/badges.py [--check]

They are files of the repository, so nothing is loaded from elsewhere. ``--check`` fails if one is out of
date.
"""

import json
import sys
import tomllib
from pathlib import Path

from made_files import ROOT, update

FOLDER = ROOT / "docs" / "images" / "badges"
MATRIX = ROOT / "benchmarks" / "results" / "matrix.json"
# Width of a letter of DejaVu Sans at 11 pixels, on average, and of the space beside a word.
LETTER, SPACE = 6.6, 12
BADGE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" height="20" role="img" '
    'aria-label="{name}: {value}">'
    '<rect width="{whole:.0f}" height="20" rx="3" fill="#0072B2"/>'
    '<path d="M3 0h{left:.0f}v20h-{left:.0f}a3 3 0 0 1-3-3v-14a3 3 0 0 1 3-3z" fill="#444c56"/>'
    '<g fill="#fff" font-family="DejaVu Sans,Verdana,sans-serif" font-size="11" text-anchor="middle">'
    '<text x="{name_at:.1f}" y="14">{name}</text><text x="{value_at:.1f}" y="14">{value}</text></g></svg>\n'
)


def ranges() -> dict[str, tuple[str, str]]:
    """Return the oldest and the newest version of Python, torch, PyG and DGL that work, as major.minor."""
    rows = json.loads(MATRIX.read_text())["results"]
    found = {}
    for name in ("Python", "torch", "PyG", "DGL"):
        worked = (row[name.lower()] for row in rows if row["smoke"] and not row["wrong"])
        versions = sorted(tuple(map(int, each.split(".")[:2])) for each in worked if each)
        found[name] = "{}.{}".format(*versions[0]), "{}.{}".format(*versions[-1])
    return found


def badges() -> dict[Path, str]:
    """Return the text of each badge's file."""
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    values = {"licence": licence}
    found = ranges()
    for name in ("Python", "torch", "PyG"):
        values[name] = " to ".join(found[name])
    return {FOLDER / f"{name.lower()}.svg": _badge(name, value) for name, value in values.items()}


def _badge(name: str, value: str) -> str:
    left, right = (LETTER * len(text) + SPACE for text in (name, value))
    return BADGE.format(
        name=name, value=value, whole=left + right, left=left - 3, name_at=left / 2, value_at=left + right / 2
    )


def main(check: bool) -> None:
    """Writes them, or compares."""
    update(badges(), "badges", check)


if __name__ == "__main__":
    main("--check" in sys.argv)
