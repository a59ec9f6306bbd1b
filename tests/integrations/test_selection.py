"""Which frameworks ``patch()`` finds, and what it says where one cannot be used."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import importlib.util, sys
missing = {missing!r}
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in missing else find(name, *rest)
sys.path.insert(0, {path!r})
import onehop
try:
    onehop.patch(only={only!r})
except onehop.ConfigurationError as error:
    print(error)
"""


def said(only: str | None, missing: tuple[str, ...] = (), path: str = "") -> str:
    """What the error says, in a process of its own."""
    program = PROGRAM.format(only=only, missing=missing, path=path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        (None, "found nothing to patch: torch_geometric is not installed, and none of DGL, MACE"),
        ("pyg", "pip install 'onehop[pyg]'"),
        ("dgl", "pip install 'onehop[dgl]'"),
    ],
)
def test_frameworks_that_are_not_installed(only, sentence):
    assert sentence in said(only, missing=("torch_geometric", "dgl"))


def test_dgl_that_does_not_import(tmp_path: Path):
    (tmp_path / "dgl").mkdir()
    (tmp_path / "dgl" / "__init__.py").write_text("raise ImportError('its library is for another torch')\n")
    text = said("dgl", path=str(tmp_path))
    assert "cannot be imported (its library is for another torch)" in text
    assert "install one made for yours" in text
