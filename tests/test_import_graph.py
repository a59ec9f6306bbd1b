"""The script that counts arrows finds those upwards, circles and back doors, wherever an import is."""

from pathlib import Path

import pytest

from tests.processes import run_anew

SCRIPT = Path(__file__).parents[1] / "scripts" / "import_graph.py"
LAYERS = """
[[tool.importlinter.contracts]]
type = "layers"
layers = ["(top)", "middle | beside", "low", "loading"]
"""
DOWNWARDS = {
    "__init__": "from onehop.top import run",
    "top": "from onehop import _native, low, middle",
    "middle": "import torch",
    "beside": "from .low import kept",
    "low": "",
    "loading": "",
}
# A way from the middle to the lowest file.
WAY = """
class Way:
    def __init__(self, provider, *users):
        self.provider, self.users = provider, users
ROWS = Way("onehop.middle", "onehop.low")
"""
PROVIDES = "from onehop.loading import ROWS\nROWS.provide(1)"
USES = "from onehop.loading import ROWS\ndef f():\n    return ROWS.provided"


def counted(checkout: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    package = checkout / "src" / "onehop"
    package.mkdir(parents=True)
    (checkout / "pyproject.toml").write_text(LAYERS)
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    done = run_anew(SCRIPT, checkout)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_arrows_are_counted(tmp_path: Path) -> None:
    assert counted(tmp_path, DOWNWARDS) == (
        0,
        ["6 files, 4 arrows, 0 upwards, 0 circles of files, 0 back doors"],
    )


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
    assert lines[0] == "6 files, 6 arrows, 1 upwards, 1 circles of files, 0 back doors"
    assert lines[1] == "  upwards: onehop.low -> onehop.middle"
    assert {"onehop.low", "onehop.middle", "onehop.beside"} == set(lines[2].split()[1:]) - {"->"}


@pytest.mark.parametrize(
    "text",
    [
        "import sys\n__getattr__ = sys.modules[__name__]",
        "def f():\n    from onehop import loading",
        "import sys",
    ],
    ids=["itself", "an import downwards in a function", "another use of sys"],
)
def test_what_reaches_no_other_file_is_no_back_door(tmp_path: Path, text: str) -> None:
    code, lines = counted(tmp_path, {**DOWNWARDS, "low": text})
    assert (code, lines[0].rpartition(", ")[2]) == (0, "0 back doors")


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nmiddle = sys.modules.get('onehop.middle')",
        "import sys\ndef f(modules=sys.modules):\n    return modules['onehop.middle']",
        "from sys import modules",
    ],
    ids=["by its name", "by another name", "imported"],
)
def test_uses_of_all_modules_are_back_doors(tmp_path: Path, text: str) -> None:
    code, lines = counted(tmp_path, {**DOWNWARDS, "low": text})
    assert (code, lines[1:]) == (1, ["  back door: onehop.low uses sys.modules"])


def test_a_file_of_the_package_is_not_asked_for_as_a_package_of_others(tmp_path: Path) -> None:
    asks = "from onehop.loading import imported\nnumpy, middle = imported('numpy'), imported('onehop.middle')"
    code, lines = counted(tmp_path, {**DOWNWARDS, "low": asks})
    assert (code, lines[1:]) == (1, ["  back door: onehop.low asks for onehop.middle"])


@pytest.mark.parametrize(
    ("files", "doors"),
    [
        ({"middle": PROVIDES, "low": USES}, []),
        ({"middle": PROVIDES, "low": USES, "beside": USES}, ["onehop.beside uses ROWS"]),
        (
            {"beside": PROVIDES, "low": USES},
            ["onehop.beside provides ROWS", "loading.py names onehop.middle at ROWS"],
        ),
        ({"middle": PROVIDES}, ["loading.py names onehop.low at ROWS"]),
        (
            {
                "middle": PROVIDES,
                "low": USES,
                "top": "from onehop import loading\nloading.ROWS.when_provided(f)",
            },
            ["onehop.top uses ROWS"],
        ),
    ],
    ids=["as declared", "another user", "another provider", "nobody uses it", "an attribute"],
)
def test_ways_are_those_that_are_declared(tmp_path: Path, files: dict[str, str], doors: list[str]) -> None:
    code, lines = counted(tmp_path, {**DOWNWARDS, "loading": WAY, **files})
    assert (code, lines[1:]) == (bool(doors), [f"  back door: {door}" for door in doors])


def test_a_file_without_a_layer_is_named(tmp_path: Path) -> None:
    expected = "onehop.stray is not among the layers of pyproject.toml."
    assert counted(tmp_path, {**DOWNWARDS, "stray": "import onehop.low"}) == (1, [expected])


def test_this_package_has_no_arrow_upwards_no_circle_and_no_back_door() -> None:
    done = run_anew(SCRIPT)
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == []
