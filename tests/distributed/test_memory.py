"""Bytes that a divided graph and its layers hold, counted by looking at everything that the process has."""

import subprocess
import sys

import pytest
import scipy.sparse

import onehop
from benchmarks import harness
from benchmarks.distributed import count_memory
from onehop import datasets
from onehop.distributed import cost
from tests.distributed.launch import ROOT, environment_of
from tests.processes import run_together

# Sources and numbers of edges, a split and its transpose: 4 bytes each, and 8 for the transpose; then rows.
MOST = {"gcn": 30, "sage": 25, "gatv2": 45}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """What each of two processes counts, by model."""
    pytest.importorskip("torch_geometric")
    found = datasets.twin("arxiv-communities", scale=0.1, features=False)
    file = tmp_path_factory.mktemp("graph") / "graph.npz"
    whole = onehop.Graph.from_edge_index(found.edge_index, found.num_nodes)
    scipy.sparse.save_npz(file, whole.to_scipy())
    order = {"graph": str(file), "models": list(MOST), "method": "greedy"}
    environment = environment_of(2)
    ranks = [environment | {"RANK": str(rank)} for rank in range(2)]
    done = run_together(harness.program_of(count_memory.work, order)[1:], ranks)
    assert [each.returncode for each in done] == [0, 0], done
    return [harness.result_of(each.stdout) for each in done]


@pytest.mark.parametrize("model", MOST)
def test_bytes_an_owned_edge(model: str, ranks: list[dict]) -> None:
    for rank in ranks:
        counted = rank[model]
        assert counted["halo"] > 0
        assert counted["held_bytes"] <= MOST[model] * counted["edges"]
        # But for the number that an edge_index without memory points to.
        assert counted["nbytes"] <= counted["held_bytes"] <= counted["nbytes"] + 64


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_the_model_of_memory_says_what_is_counted(model: str, ranks: list[dict]) -> None:
    rows, halo, edges, counted = (
        sum(rank[model][name] for rank in ranks) for name in ("rows", "halo", "edges", "nbytes")
    )
    assert halo == ranks[0][model]["cut_rows"]
    # But for the ends of arrays, which the graphs pad so that kernels may read ahead.
    assert cost.graph_bytes(rows, halo, edges) == pytest.approx(counted, abs=8000)


# In a process of its own: other tests leave tensors behind that have no storage.
COUNTED = """
import torch
import onehop
from benchmarks.distributed.count_memory import held_bytes

before = held_bytes([])
one, known = torch.zeros(1000), torch.zeros(50)
view = one[10:]
graph = onehop.Graph.from_csr(torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 1]))
assert held_bytes([known]) - before == view.untyped_storage().nbytes() + graph.nbytes
assert held_bytes([view]) - before == known.nbytes + graph.nbytes
print("counted")
"""


def test_the_counter_counts_each_storage_once() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", COUNTED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "counted\n"
