"""What `make wheel-aarch64` checks before and after it compiles."""

import re
import shutil
import sysconfig
import zipfile
from pathlib import Path

import pytest

from onehop import native
from tests import scripts

cross = scripts.load("cross_wheel")
HEADERS = Path(sysconfig.get_path("include"))
COMPILER = shutil.which("c++")


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_headers_fit_the_processor_that_they_were_made_for() -> None:
    cross.check_headers(str(HEADERS), COMPILER)


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_headers_of_another_processor_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "include"
    shutil.copytree(HEADERS, folder)
    written = folder / "pyconfig.h"
    text, changed = re.subn(r"#define SIZEOF_WCHAR_T \d", "#define SIZEOF_WCHAR_T 2", written.read_text())
    assert changed == 1
    written.write_text(text)
    with pytest.raises(SystemExit, match=r"do not fit(.|\n)*SIZEOF_WCHAR_T"):
        cross.check_headers(str(folder), COMPILER)


def test_a_wheel_for_this_processor_is_none_for_arm(tmp_path: Path) -> None:
    if sysconfig.get_platform() == "linux-aarch64":
        pytest.skip("this is Arm")
    wheel = tmp_path / "onehop-0-cp311-cp311-linux_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(native.extension.__file__, "onehop/_native.so")
    with pytest.raises(SystemExit, match=r"no wheel for Arm: its extensions are for \{'x64'\}"):
        cross.check_wheel(wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("onehop/__init__.py", "")
    with pytest.raises(SystemExit, match="are for nothing"):
        cross.check_wheel(wheel)


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"apt install g\+\+-aarch64-linux-gnu"):
        cross.check_compiler()
