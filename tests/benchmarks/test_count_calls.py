"""Upper bounds of how many Python functions and files of onehop a warm call passes through."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import onehop

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "calls" / "count_calls.py"

# Calls and files in all, and the calls in the patch itself. Of the files, one of each attention operator is
# ops/contexts.py, and one of each layer graph/contents.py, because no file has more than 400 lines;
# of a compiled message, compiler/ways.py and compiler/reading.py too. Of a layer, two calls
# and one file are those of edges/writes.py, one and one those of conditions.py, and one file is stages.py.
BOUNDS = {
    "aggregate forward": (12, 6, 0),
    "aggregate backward": (12, 6, 0),
    "gatv2 forward": (15, 7, 0),
    "gatv2 backward": (32, 9, 0),
    "GCNConv forward": (40, 20, 24),
    "SAGEConv forward": (59, 26, 44),
    "GATConv forward": (78, 27, 48),
    "GATv2Conv forward": (69, 26, 41),
    "ResGatedGraphConv forward": (176, 38, 69),
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The counts of a process of its own: what other tests import is counted too."""
    found = tmp_path_factory.mktemp("calls") / "counts.json"
    cases = ",".join(name.split()[0] for name in BOUNDS)
    subprocess.run([sys.executable, SCRIPT, "--cases", cases, "--json", found], check=True)
    return json.loads(found.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", BOUNDS)
def test_a_warm_call_passes_through_few_functions(name, counted):
    counts, (calls, files, of_patch) = counted[name], BOUNDS[name]
    assert 0 < counts["calls"] <= calls
    assert 0 < counts["files"] <= files
    assert counts["folders"].get("integrations", 0) <= of_patch
    assert sum(counts["folders"].values()) == counts["calls"]


def test_frames_are_counted_with_their_depth(monkeypatch):
    spec = importlib.util.spec_from_file_location("count_calls", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script: ModuleType = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    monkeypatch.setitem(sys.modules, "count_calls", script)
    spec.loader.exec_module(script)
    graph = onehop.Graph.from_edge_index(torch.zeros(2, 3, dtype=torch.int64), num_nodes=2)
    counts = script.count(graph.transpose)
    assert counts.tree[0] == (0, "graph/graph.py Graph.transpose")
    assert counts.calls == len(counts.tree) == sum(counts.folders.values())
