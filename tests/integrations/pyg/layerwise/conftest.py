import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference_inputs import NODES, SMALL, WIDTH
from torch import Tensor, nn

import onehop
from onehop import Graph
from onehop.graph.stored import StoredGraph
from tests.processes import Stop

Infer = Callable[..., Path]


@pytest.fixture
def stored(edge_index: Tensor, tmp_path: Path) -> StoredGraph:
    return Graph.from_edge_index(edge_index, NODES).save(tmp_path / "graph")


@pytest.fixture
def x(tmp_path: Path, generator: torch.Generator) -> Tensor:
    values = torch.randn(NODES, WIDTH, generator=generator)
    np.save(tmp_path / "x.npy", values.numpy())
    return values


@pytest.fixture
def infer(stored: StoredGraph, x: Tensor, tmp_path: Path) -> Infer:
    """Runs a model on the features of a file, into another."""

    def run(model: nn.Module, given: str = "x.npy", out: str = "out.npy", **options: Any) -> Path:
        return onehop.infer(model, stored, tmp_path / given, tmp_path / out, **{"memory": SMALL, **options})

    return run


@pytest.fixture
def compared(infer: Infer, x: Tensor, edge_index: Tensor) -> Callable[..., None]:
    """Compares what a model gives from disk to disk with what it gives in memory."""

    def run(model: nn.Module, values: Tensor = x, tolerance: float = 1e-4, **options: Any) -> None:
        with torch.no_grad():
            exact = model(values, edge_index).numpy()
        found = np.load(infer(model, **options))
        assert found.dtype == exact.dtype
        least = tolerance * max(np.abs(exact).max(), 0.1)
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=least)

    return run


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], AbstractContextManager[None]]:
    """A context that runs until a function is called."""

    @contextlib.contextmanager
    def context(function: str) -> Iterator[None]:
        def stop(*_: object) -> None:
            raise Stop

        with monkeypatch.context() as patch:
            patch.setattr(function, stop)
            with pytest.raises(Stop):
                yield

    return context


@pytest.fixture
def stopped(infer: Infer, stopping: Callable[..., AbstractContextManager[None]]) -> Callable[..., None]:
    """Runs a model until its result is complete, but not yet in its place."""

    def run(model: nn.Module, function: str = "onehop.streaming.layerwise.finish") -> None:
        with stopping(function):
            infer(model)

    return run


@pytest.fixture
def left(tmp_path: Path) -> Callable[[], list[str]]:
    """The names of the files and folders that there are."""
    return lambda: sorted(each.name for each in tmp_path.iterdir())
