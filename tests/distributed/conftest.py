"""What several modules compare with."""

import pytest

from tests.distributed.launch import run


@pytest.fixture(scope="session")
def alone() -> dict[str, list[float]]:
    """Losses of PyG itself, without onehop, in one process."""
    pytest.importorskip("torch_geometric")
    return run("training_worker.py", 1, "alone")[0]
