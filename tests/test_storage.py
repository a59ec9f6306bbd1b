"""Files that appear as a whole, and refusals as sentences."""

import json
import os
from pathlib import Path

import pytest

from onehop import storage
from onehop.bench.results import write_json
from onehop.errors import StorageError
from onehop.machines.common.trace import Trace
from tests.cli.running import onehop


def test_a_file_appears_as_a_whole_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    storage.write_text("json", path, "one")
    storage.write_text("json", path, "two")
    assert path.read_text() == "two"
    assert [each.name for each in path.parent.iterdir()] == ["report.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    storage.write_text("json", tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_disk_that_fills_up_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = tmp_path / "report.json"
    path.write_text("earlier")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if moment == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    if moment == "replace":
        monkeypatch.setattr(Path, "replace", full)
    told = r"json: cannot write .*report\.json \(No space left on device\)\. Make room .* earlier file is"
    with pytest.raises(StorageError, match=told) as error:
        storage.write_whole("json", path, full if moment == "write" else lambda file: file.write(b"new"))
    assert error.value.errno == 28
    assert path.read_text() == "earlier"
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


def test_reports_on_a_full_disk_are_sentences() -> None:
    # A device on which every write finds the disk full.
    full = Path("/dev/full")
    for write in (
        lambda: write_json(full, "bench", {}),
        lambda: Trace().write(full),
        lambda: storage.write_text("json", full, "text"),
    ):
        with pytest.raises(StorageError, match=r"cannot write /dev/full .*No space left on device"):
            write()
    assert full.is_char_device()  # and it is still that


def test_a_verb_whose_report_cannot_be_written_says_so_and_ends(tmp_path: Path) -> None:
    (tmp_path / "ring.txt").write_text("0 1\n1 2\n2 0\n")
    (tmp_path / "file").write_text("in the way")
    arguments = ("simulate", "pim", "--graph", tmp_path / "ring.txt", "--width", 4, "--json")
    for place, told in (
        ("/dev/full", "cannot write /dev/full (No space left on device)"),
        (tmp_path / "file" / "report.json", "A part of the path is not a folder"),
    ):
        result = onehop(*arguments, place)
        assert result.exit_code == 2
        assert told in result.stderr
    report = tmp_path / "report.json"
    assert onehop(*arguments, report).exit_code == 0
    json.loads(report.read_text())
