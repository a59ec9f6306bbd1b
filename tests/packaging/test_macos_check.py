"""What `make macos-check` says before and after it compiles."""

import importlib.util
import struct
from pathlib import Path

import pytest

from onehop import native
from tests import scripts

macos = scripts.load("macos_check")


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(macos, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install ziglang"):
        macos.make_compilers(tmp_path)


def test_compilers_are_programs_for_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(macos, "find_spec", lambda name: importlib.util.find_spec("json"))
    macos.make_compilers(tmp_path / "compilers")
    for name in ("cc", "c++"):
        program = tmp_path / "compilers" / name
        assert program.stat().st_mode & 0o100
        assert f"ziglang {name} -target aarch64-macos" in program.read_text()


def test_a_library_of_another_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no library for macOS"):
        macos.check_library(Path(native.extension.__file__))
    path = tmp_path / "_native.so"
    begin = [macos.MAGIC, macos.ARM64, 0, macos.LIBRARY]
    path.write_bytes(struct.pack("<4I", *begin))
    macos.check_library(path)
    for place in (0, 1, 3):
        other = [number + (place == at) for at, number in enumerate(begin)]
        path.write_bytes(struct.pack("<4I", *other))
        with pytest.raises(SystemExit, match="no library for macOS"):
            macos.check_library(path)
