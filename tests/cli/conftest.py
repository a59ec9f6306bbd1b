import subprocess
from types import SimpleNamespace

import pytest

from onehop.bench import runs
from tests.processes import Piped


@pytest.fixture
def edge_list(tmp_path):
    """A file with a ring of 30 nodes and some chords."""
    path = tmp_path / "ring.txt"
    lines = [f"{i} {(i + 1) % 30}\n{i} {(i * 7 + 2) % 30}" for i in range(30)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def forked_runs(monkeypatch):
    """Training runs in processes that have imported all; ``test_runs.py`` has them as users do."""
    monkeypatch.setattr(runs, "subprocess", SimpleNamespace(Popen=Piped, PIPE=subprocess.PIPE))
