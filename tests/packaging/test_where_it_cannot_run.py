"""Environments in which onehop cannot run say so in one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Finds a module missing, or of another machine.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise {error}
sys.meta_path.insert(0, Missing())
"""
NOT_INSTALLED = "ModuleNotFoundError(f'No module named {name!r}', name=name)"
OF_ANOTHER = "ImportError('wrong ELF class: ELFCLASS32')"


def ended(program: str) -> tuple[int, str]:
    """The exit code, and the last line of what it said."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip().splitlines()[-1]


def command(*arguments: str) -> str:
    return f"sys.argv[:] = ['onehop', *{arguments!r}]\nfrom onehop.cli import main\nmain()\n"


@pytest.mark.parametrize("verb", ["info", "demo", "tune"])
def test_without_torch(verb: str) -> None:
    code, told = ended(WITHOUT.format(missing="torch", error=NOT_INSTALLED) + command(verb))
    assert code == 2
    assert told == f"onehop: onehop {verb} needs torch, which is not installed: pip install 'onehop[cli]'."


def test_with_kernels_of_another_machine() -> None:
    without = WITHOUT.format(missing="onehop._native", error=OF_ANOTHER)
    code, told = ended(without + command("info"))
    assert code == 2
    assert told.startswith("onehop: onehop's compiled kernels cannot be loaded by Python 3.")
    assert "(wrong ELF class: ELFCLASS32). Install onehop for this machine" in told
    code, told = ended(without + "import onehop")
    assert code == 1
    assert told.startswith("onehop.errors.ExtensionError: onehop's compiled kernels")


@pytest.mark.parametrize("program", ["import onehop", command("info")])
def test_with_an_older_torch(program: str) -> None:
    _, told = ended("import sys, torch; torch.__version__ = '2.5.1+cpu'\n" + program)
    assert told.endswith("onehop works with torch 2.6 or later, and this is 2.5.1+cpu: pip install -U torch")


def test_without_a_compiler(tmp_path: Path) -> None:
    programs = {name: Path(sys.executable).with_name(name) for name in ("cmake", "ninja")}
    if not all(program.exists() for program in programs.values()):
        pytest.skip("cmake and ninja come with the extra build")
    ninja = [f"-DCMAKE_MAKE_PROGRAM={programs['ninja']}", "-G", "Ninja"]
    done = subprocess.run(
        [programs["cmake"], "-S", ROOT, "-B", tmp_path, *ninja],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    told = " ".join(done.stderr.split())
    assert "there is no C++ compiler. Debian and Ubuntu: apt install g++" in told


def test_with_an_older_python() -> None:
    code, told = ended("import sys; sys.version_info = (3, 10, 13); import onehop")
    assert code == 1
    assert told.startswith("ImportError: onehop needs Python 3.11 or later, and this is ")
