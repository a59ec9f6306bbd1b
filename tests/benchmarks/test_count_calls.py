"""Upper bounds of how many Python functions and files of onehop a warm call passes through."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import onehop

ROOT = Path(__file__).resolve().parents[2]

# Calls and files in all; then calls in the patch itself, and in the cache that recognises an edge_index.
BOUNDS = {
    "GCNConv forward": (65, 24, 24),
    "SAGEConv forward": (72, 25, 37),
    "GATConv forward": (116, 27, 38),
    "GATv2Conv forward": (115, 27, 36),
    "ResGatedGraphConv forward": (7, 5, 7),
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "benchmarks" / "calls" / "count_calls.py"
    spec = importlib.util.spec_from_file_location("count_calls", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules["count_calls"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def counted(script: ModuleType) -> dict[str, object]:
    onehop.clear_cache()
    return script.counted({name.split()[0] for name in BOUNDS})


@pytest.mark.parametrize("name", BOUNDS)
def test_a_warm_layer_passes_through_few_functions(name, counted):
    counts, (calls, files, of_patch) = counted[name], BOUNDS[name]
    assert 0 < counts.calls <= calls
    assert 0 < len(counts.files) <= files
    assert counts.folders["integrations"] <= of_patch


def test_frames_are_counted_with_their_depth(script):
    graph = onehop.Graph.from_edge_index(script.torch.zeros(2, 3, dtype=script.torch.int64), num_nodes=2)
    counts = script.count(lambda: graph.transpose())
    assert counts.tree[0] == (0, "graph/graph.py Graph.transpose")
    assert counts.calls == len(counts.tree) == sum(counts.folders.values())
