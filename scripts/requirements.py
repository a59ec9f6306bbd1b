"""Prints what the project needs, one requirement a line: to build, to run, and for the extras named.

So that pip can install the requirements before, and apart from, the project itself.
"""

import re
import sys
import tomllib
from pathlib import Path


def requirements(extras: list[str]) -> list[str]:
    """The requirements of pyproject.toml, those of ``extras`` included."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    settings = tomllib.loads(text)
    project = settings["project"]
    optional = project["optional-dependencies"]
    own, lines = re.compile(rf"{project['name']}\[(.*)\]"), []
    while extras:
        extra, *extras = extras
        for line in optional[extra]:
            if named := own.fullmatch(line):  # an extra that is made of others
                extras += named[1].split(",")
            else:
                lines.append(line)
    return [*settings["build-system"]["requires"], *project["dependencies"], *dict.fromkeys(lines)]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in requirements(sys.argv[1:])))
