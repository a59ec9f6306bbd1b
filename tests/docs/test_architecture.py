"""The page of the architecture: its picture is up to date, and the files that it names exist."""

import re
from pathlib import Path

from tests import scripts

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def test_the_picture_is_up_to_date():
    scripts.load("architecture").main(check=True)


def test_all_files_that_are_named_exist():
    named = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert len(named) > 20
    for each in named:
        assert any(
            (base / each).exists()
            for base in (ROOT, ROOT / "src/onehop", ROOT / "src/onehop/integrations/pyg")
        )
