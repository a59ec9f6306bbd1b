"""The script that counts arrows finds those that go upwards and circles, wherever an import is."""

from pathlib import Path

import pytest

from tests.processes import run_anew

SCRIPT = Path(__file__).parents[1] / "scripts" / "import_graph.py"
LAYERS = """
[[tool.importlinter.contracts]]
type = "layers"
layers = ["(top)", "middle | beside", "low"]
"""
DOWNWARDS = {
    "__init__": "from onehop.top import run",
    "top": "from onehop import _native, low, middle",
    "middle": "import torch",
    "beside": "from .low import kept",
    "low": "",
}


def counted(checkout: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    package = checkout / "src" / "onehop"
    package.mkdir(parents=True)
    (checkout / "pyproject.toml").write_text(LAYERS)
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    done = run_anew(SCRIPT, checkout)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_arrows_are_counted(tmp_path: Path) -> None:
    assert counted(tmp_path, DOWNWARDS) == (0, ["5 files, 4 arrows, 0 upwards, 0 circles of files"])


@pytest.mark.parametrize(
    "text",
    [
        "from onehop.middle import run",
        "def f():\n    from onehop import middle",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import onehop.middle",
        "import importlib\ndef f():\n    importlib.import_module('onehop.middle')",
    ],
    ids=["at the top", "in a function", "for types", "by its name"],
)
def test_arrows_upwards_and_circles_are_named(tmp_path: Path, text: str) -> None:
    code, lines = counted(tmp_path, {**DOWNWARDS, "low": text, "middle": "from .beside import kept"})
    assert code == 1
    assert lines[0] == "5 files, 6 arrows, 1 upwards, 1 circles of files"
    assert lines[1] == "  upwards: onehop.low -> onehop.middle"
    assert {"onehop.low", "onehop.middle", "onehop.beside"} == set(lines[2].split()[1:]) - {"->"}


def test_a_file_without_a_layer_is_named(tmp_path: Path) -> None:
    expected = "onehop.stray is not among the layers of pyproject.toml."
    assert counted(tmp_path, {**DOWNWARDS, "stray": "import onehop.low"}) == (1, [expected])


def test_this_package_has_no_arrow_upwards_and_no_other_circle() -> None:
    done = run_anew(SCRIPT)
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == []
