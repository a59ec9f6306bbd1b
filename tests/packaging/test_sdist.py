"""The sources that are published: all that compiling needs, and no tests."""

import tarfile
from pathlib import Path

import pytest

from tests.processes import run_anew

pytest.importorskip("scikit_build_core")

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("sdist")
    run_anew("-c", BUILD, folder, cwd=ROOT, check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_there_are_no_tests_in_it(names: set[str]) -> None:
    kept = {
        "CHANGELOG.md",
        "CMakeLists.txt",
        "CONTRIBUTING.md",
        "CITATION.cff",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "SECURITY.md",
    }
    kept |= {".gitignore", "csrc", "examples", "pyproject.toml", "src"}
    assert {name.partition("/")[0] for name in names} == kept


def test_all_that_is_compiled_is_in_it(names: set[str]) -> None:
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*") if path.is_file()}
    assert sources - names == set()
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "src" / "onehop").rglob("*.py")}
    assert package - names == set()
    assert not {name for name in names if name.endswith(".so")}
