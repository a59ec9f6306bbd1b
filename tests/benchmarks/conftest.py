"""What tests of benchmarks share."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from benchmarks import harness


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs here what a benchmark measures in processes of their own, which import PyG for seconds."""

    def here(function: Callable[..., Any], order: Any, what: str = "") -> Any:
        return json.loads(json.dumps(function(json.loads(json.dumps(order)))))

    monkeypatch.setattr(harness, "apart", here)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
