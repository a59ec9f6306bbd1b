"""What the Makefile installs: the requirements of an extra, with those of the extras that it is made of."""

import tomllib
from pathlib import Path

import pytest

from tests import scripts

script = scripts.load("requirements")
ROOT = Path(__file__).parents[2]


def names(*extras: str) -> set[str]:
    lines = script.requirements(list(extras))
    assert len(lines) == len(set(lines))
    return {line.split(">")[0].split("=")[0] for line in lines}


def test_without_extras_there_are_what_builds_and_what_the_library_needs() -> None:
    assert names() == {"scikit-build-core", "nanobind", "torch", "numpy", "scipy", "platformdirs"}


@pytest.mark.parametrize(
    ("extra", "added"),
    [
        ("cli", {"typer", "rich", "matplotlib"}),
        ("bench", {"typer", "rich", "matplotlib", "torch_geometric", "numba"}),
    ],
)
def test_extras_bring_those_they_are_made_of(extra: str, added: set[str]) -> None:
    assert names(extra) - names() == added


def test_every_extra_can_be_asked_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not {name for name in names(*extras) if name.startswith("onehop")}
