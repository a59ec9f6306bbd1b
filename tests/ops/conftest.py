"""What tests of operators share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onehop import Graph, native
from onehop.graph.stored import StoredGraph


@pytest.fixture(params=native.extension.available_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test on each instruction set that this processor has."""
    before = native.extension.selected_isa()
    assert native.extension.select_isa(request.param)
    yield request.param
    native.extension.select_isa(before)


@pytest.fixture
def stored(graph: Graph, tmp_path: Path) -> StoredGraph:
    """The fixture ``graph`` of a file of tests, in the folder "graph"."""
    return graph.save(tmp_path / "graph")
