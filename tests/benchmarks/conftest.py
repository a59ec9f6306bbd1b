"""What tests of benchmarks share."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import harness


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs here what a benchmark measures in processes of their own, which import PyG for seconds."""

    def here(function: Callable[..., Any], order: Any, what: str = "", **variables: str) -> Any:
        return json.loads(json.dumps(function(json.loads(json.dumps(order)))))

    monkeypatch.setattr(harness, "apart", here)
