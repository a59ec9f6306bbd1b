"""Writes where the project lives into pyproject.toml, so that the packages which are built next link to it.

    python scripts/project_urls.py https://github.com/OWNER/NAME

The release workflow calls it with the address of its own repository, so a fork's packages lead to the fork.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
# The begin of the table before which the addresses go.
NEXT = "[project.scripts]\n"
PLACES = {
    "Homepage": "",
    "Documentation": "/tree/main/docs",
    "Reasons": "/blob/main/docs/reference/reasons.md",
    "Source": "",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}
"""Each name that package indexes know, and its place below the repository's address."""


def with_urls(text: str, home: str) -> str:
    """The text of pyproject.toml with ``[project.urls]``; SystemExit if they cannot be added."""
    if not re.fullmatch(r"https://[^\s/\"]+/[^\s/\"]+/[^\s/\"]+", home):
        raise SystemExit(
            f"Expected a repository's address, such as https://github.com/OWNER/NAME; got {home!r}."
        )
    if "urls" in tomllib.loads(text)["project"]:
        raise SystemExit("pyproject.toml has [project.urls] already; change it there.")
    begin, mark, rest = text.partition(NEXT)
    if not mark:
        raise SystemExit(f"pyproject.toml has no {NEXT.strip()}, before which addresses are written.")
    lines = "".join(f'{name} = "{home}{place}"\n' for name, place in PLACES.items())
    return f"{begin}[project.urls]\n{lines}\n{mark}{rest}"


if __name__ == "__main__":
    PROJECT.write_text(with_urls(PROJECT.read_text(), sys.argv[1]))
