"""IO-aware kernels and iSpLib: what is counted, by hand; what is measured, for its form."""

import contextlib

import pytest
import torch

from onehop.bench.models import ModelResult
from onehop.bench.timing import Times
from onehop.reproduce import io_aware, isplib
from onehop.reproduce.io_aware import counted, layers, reordering
from onehop.reproduce.twins import Twin, silent


@pytest.mark.parametrize(
    ("graph", "forward", "backward", "summed"),
    # Floors in ms at 2 TB/s that an independent count gives.
    [
        ("ogbn-arxiv", 0.20, 0.64, 0.17),
        ("tolokers-2", 0.14, 0.42, 0.14),
        ("web-traffic", 2.4, 8.1, 2.05),
        ("ogbn-products", 16.7, 51.5, 16.4),
    ],
)
def test_floors_of_bytes(graph: str, forward: float, backward: float, summed: float) -> None:
    size = counted.GRAPHS[graph]
    for moved, expected in (
        (counted.gatv2_forward_bytes, forward),
        (counted.gatv2_backward_bytes, backward),
        (counted.sum_bytes, summed),
    ):
        assert moved(size) / 2e9 == pytest.approx(expected, rel=0.03)


def test_what_needs_a_gpu_says_so() -> None:
    for row in (*counted.headlines(), *counted.times()):
        assert row.ours is None
        assert row.paper is not None
        assert "Needs a GPU" in row.note


def test_memory_is_counted_tensor_by_tensor() -> None:
    size = counted.Size(10, 100)
    node_rows, edge_rows = 10 * 4 * 128 * 4 + 10 * 8, 100 * 16
    assert counted.fused_bytes(size) == node_rows + edge_rows
    assert counted.dgl_bytes(size) - counted.fused_bytes(size) == 100 * (3 * 512 + 4 * 8)
    assert counted.dgl_bytes(size) - counted.dgl_bytes(size, edge_rows=2) == 100 * 512
    rows = {row.figure.rpartition(", ")[2]: row for row in counted.memory()}
    assert {graph: row.paper for graph, row in rows.items()} == {
        "tolokers-2": 32.6,
        "twitch-views": 44.0,
        "ogbn-arxiv": 4.7,
        "city-roads-L": 1.8,
    }


def test_pyg_keeps_rows_of_edges_and_we_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    import onehop

    monkeypatch.setattr(layers, "_EDGES", (20_000, 40_000))
    make = layers._keeping()["GATv2"]
    # Three rows of 256 floats, three numbers for each of four heads, both ends.
    assert layers.bytes_an_edge(make, contextlib.nullcontext) == pytest.approx(3 * 1024 + 3 * 16 + 16, abs=1)
    assert layers.bytes_an_edge(make, lambda: onehop.patch()) < 64


def test_saved_storages_count_once() -> None:
    def layer(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return (x * x).exp()

    x = torch.ones(5, 4, requires_grad=True)
    # x, which is saved twice, and the result of exp.
    assert layers.kept_bytes(layer, x, x) == 2 * 5 * 4 * 4


def test_layers_are_checked_then_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_TWIN", Twin("cora", 1.0))
    monkeypatch.setattr(layers, "_QUICK_ROUNDS", 1)
    found = layers.measured(True, silent)
    assert len(found) == 8
    rows = layers.rows(found)
    assert all(row.ours is not None and row.ours > 0 and row.paper is None for row in rows)
    (chart,) = layers.charts(found)
    assert [series.label for series in chart.series] == ["PyG (baseline)", "onehop"]
    wrong = layers.Timed("GATv2", "forward", "cora twin", wrong={"onehop": "results differ by 0.5"})
    assert layers.rows([wrong])[0].note == "Not timed: results differ by 0.5."
    assert layers.charts([wrong]) == ()


def test_without_pyg_the_rows_that_need_it_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reordering, "KINDS", ())
    for module in (io_aware, isplib):
        monkeypatch.setattr(module, "import_reason", lambda name: f"{name} cannot be imported (it is gone)")
        rows = module.reproduce(quick=True).rows
        assert "Needs PyG: torch_geometric cannot be imported" in rows[-1].note
        assert rows[-1].ours is None


def test_epochs_of_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isplib, "TWINS", (Twin("cora", 1.0),))
    monkeypatch.setattr(isplib, "_QUICK_ROUNDS", 1)
    found = isplib.reproduce(quick=True)
    first, *own, last = found.rows
    assert first.paper == 27.0
    assert first.ours == max(row.ours for row in own if row.ours is not None)
    assert [row.figure.split(", ")[1] for row in own] == ["GCN", "SAGE", "GIN"]
    assert "iSpLib" in last.figure
    assert found.charts[0].groups[0] == "GCN 32 cora twin"


def test_epochs_whose_losses_differ_have_no_ratio() -> None:
    times = {"pyg-edge_index": Times((4.0,)), "onehop": Times((2.0,))}
    apart = {"onehop": "its losses are 0.25 off those of pyg-edge_index"}
    wrong = ModelResult("cora twin", "gcn", 32, times={"pyg-edge_index": Times((4.0,))}, wrong=apart)
    assert isplib.rows([wrong])[0].note == f"Not timed: {apart['onehop']}."
    assert isplib.charts([wrong]) == ()
    right = ModelResult("cora twin", "gcn", 32, times=times)
    assert isplib.rows([right])[0].ours == 2.0
