"""Environments in which onehop cannot run say so in one sentence."""

import subprocess
import sys

import pytest

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


def test_with_an_older_python() -> None:
    code, told = ended("import sys; sys.version_info = (3, 10, 13); import onehop")
    assert code == 1
    assert told.startswith("ImportError: onehop needs Python 3.11 or later, and this is ")
