"""Pictures: their kinds, their style, and paths that are refused before any work is done."""

import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from onehop import pictures
from onehop.errors import ArgumentError, ConfigurationError, StorageError
from tests.cli.running import onehop
from tests.pictures import drawn, faults

BEGINNINGS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml", "": b"\x89PNG", "PNG": b"\x89PNG"}


def bars() -> Figure:
    figure = pictures.figure(4, 3)
    axes = figure.subplots()
    axes.bar([0, 1], [1, 2], label="one")
    axes.set_ylabel("time, ms")
    pictures.spread(axes, [0, 1], [0.5, 1.5], [1.5, 2.5])
    pictures.style(axes)
    pictures.legend(figure, axes)
    return figure


@pytest.mark.parametrize(("ending", "beginning"), BEGINNINGS.items(), ids=repr)
def test_the_name_decides_the_kind(tmp_path: Path, ending: str, beginning: bytes) -> None:
    path = tmp_path / (f"bars.{ending}" if ending else "bars")
    pictures.check("plot", path)
    pictures.save(bars(), "bars", "a machine", path)
    assert path.read_bytes().startswith(beginning)


def test_a_long_title_stays_inside_the_frame(tmp_path: Path) -> None:
    with drawn() as figures:
        pictures.save(bars(), "a title of many words " * 9, "a machine", tmp_path / "bars.png")
    assert faults(figures[0]) == []
    figures[0].suptitle("a title of many words " * 9 + "\na machine")
    assert any(fault.startswith("outside the frame") for fault in faults(figures[0]))  # it would be noticed


def test_no_two_colours_are_the_same() -> None:
    assert len(set(pictures.PALETTE)) == len(pictures.PALETTE) == 8


@pytest.mark.parametrize("name", ["bars.jpg", "bars.json"])
def test_other_kinds_are_refused(tmp_path: Path, name: str) -> None:
    for refuse in (
        lambda: pictures.check("plot", tmp_path / name),
        lambda: pictures.save(bars(), "bars", "a machine", tmp_path / name),
    ):
        with pytest.raises(ArgumentError, match=r"plot: expected the name of a picture, .* \.png, \.pdf or"):
            refuse()
    assert list(tmp_path.iterdir()) == []


def test_a_path_is_checked_without_writing_anything(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(StorageError, match=r"plot: cannot write .* A part of the path is not a folder"):
        pictures.check("plot", tmp_path / "file" / "bars.png")
    with pytest.raises(StorageError, match=r"plot: cannot write .*folder\.png .* It is a folder"):
        pictures.check("plot", tmp_path / "folder.png")
    pictures.check("plot", tmp_path / "new" / "folder" / "bars.png")  # it will be made
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder.png"]


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(StorageError, match=r"Permission denied.* that this user may write to"):
        pictures.check("plot", tmp_path / "bars.png")


def test_matplotlib_is_asked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"plot needs matplotlib, .* pip install 'onehop\[cli\]'"):
        pictures.check("plot", tmp_path / "bars.png")


@pytest.mark.parametrize(
    "verb",
    [
        ("demo",),
        ("bench", "ops"),
        ("bench", "models"),
        ("bench", "limits"),
        ("tune", "--graph", "cora"),
        ("simulate", "pim", "--graph", "twin:cora"),
        ("simulate", "ndp"),
    ],
    ids=" ".join,
)
def test_verbs_refuse_a_plot_before_the_work(verb: tuple[str, ...], tmp_path: Path) -> None:
    result = onehop(*verb, "--plot", tmp_path / "plot.jpg")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("onehop: --plot: expected the name of a picture")
    (tmp_path / "file").touch()
    result = onehop(*verb, "--json", tmp_path / "file" / "found.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("onehop: --json: cannot write")
