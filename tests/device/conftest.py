"""Tests on a GPU, which `make gpu` runs. Elsewhere they run in Triton's interpreter, on smaller inputs."""

import pytest
import torch

from onehop.kernels.triton import availability

collect_ignore_glob = ["test_*.py"] if availability.not_installed() else []


@pytest.fixture(autouse=True, scope="module")
def interpreted(request):
    """Where there is no GPU, kernels are."""
    if availability.interpreted():
        request.getfixturevalue("interpreter")


@pytest.fixture(scope="session")
def device():
    """The GPU, or the CPU where kernels are interpreted."""
    return torch.device("cpu" if availability.interpreted() else "cuda")


@pytest.fixture
def gpu():
    """The GPU, for what an interpreter does not have."""
    if availability.interpreted():
        pytest.skip("needs a GPU: make gpu")
    return torch.device("cuda")
