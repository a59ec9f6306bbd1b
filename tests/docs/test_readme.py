"""The README: its length, its pictures, and versions that are those of the package."""

import re
from pathlib import Path

import pytest

from tests import scripts

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
badges = scripts.load("badges")


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_its_pictures_exist() -> None:
    sources = re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert len(sources) == 2
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_badges_are_up_to_date() -> None:
    badges.main(check=True)


def test_a_badge_that_is_out_of_date_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(badges, "badges", lambda: {ROOT / "none.svg": ""})
    with pytest.raises(SystemExit, match=r"none\.svg is out of date"):
        badges.main(check=True)


def test_it_names_the_versions_that_the_package_admits_and_is_tested_with() -> None:
    rows = {
        name: tuple(".".join(version.split(".")[:2]) for version in (oldest, newest))
        for name, oldest, newest in re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \|", README, re.MULTILINE)
    }
    assert rows == badges.ranges()
    admitted = (ROOT / "pyproject.toml").read_text()
    for package, name in (("torch", "torch"), ("torch_geometric", "PyG"), ("dgl", "DGL")):
        assert f'"{package}>={rows[name][0]}' in admitted


def test_the_output_that_it_shows_is_that_of_the_script() -> None:
    script = (ROOT / "examples" / "train.py").read_text()
    assert "onehop run examples/train.py" in README
    shown = re.findall(r"^(\w+Conv) ", README, re.MULTILINE)
    assert shown == ["GATConv", "GCNConv"]
    assert all(f"{name}(" in script for name in shown)
