"""What several modules compare with, and groups of one process."""

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from tests.distributed.launch import run


@pytest.fixture(scope="session")
def alone() -> dict[str, list[float]]:
    """Losses of PyG itself, without onehop, in one process."""
    pytest.importorskip("torch_geometric")
    return run("training_worker.py", 1, "alone")[0]


@pytest.fixture(scope="module")
def one_process() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
