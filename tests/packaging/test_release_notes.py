"""The notes of a release are its section of the changelog."""

from pathlib import Path

import pytest

from tests import scripts

script = scripts.load("release_notes")
ROOT = Path(__file__).resolve().parents[2]
TEXT = "# Changelog\n\n## [Unreleased]\n\n- c\n\n## [0.2.0] - 2026-12-01\n\n- b\n\n## [0.1.0]\n\n- a\n"


@pytest.mark.parametrize(
    ("version", "expected"), [("0.2.0", "- b\n"), ("0.1.0", "- a\n"), ("Unreleased", "- c\n")]
)
def test_a_section_is_printed(version: str, expected: str) -> None:
    assert script.notes(TEXT, version) == expected


def test_a_version_without_a_section_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"no section 0\.1: rename"):
        script.notes(TEXT, "0.1")


def test_the_changelog_has_what_the_next_release_needs() -> None:
    assert "onehop.patch()" in script.notes((ROOT / "CHANGELOG.md").read_text(), "Unreleased")
    assert "scripts/release_notes.py" in (ROOT / ".github" / "workflows" / "release.yml").read_text()
