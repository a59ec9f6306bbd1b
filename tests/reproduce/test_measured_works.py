"""IO-aware kernels and iSpLib: what is counted, by hand; what is measured, for its form."""

import contextlib
from typing import Any

import pytest
import torch

from onehop import native
from onehop.bench.models import ModelResult
from onehop.bench.timing import Ratio, Times
from onehop.reproduce import io_aware, isplib
from onehop.reproduce.io_aware import baselines, counted, layers, on_gpu, reordering
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
    for row in (*on_gpu.headlines(), *counted.times()):
        assert (row.ours, row.verdict) == (None, "open")
        assert row.paper is not None
        no_kernel = "tensor cores" in row.figure
        assert ("onehop has no kernel for tensor cores" if no_kernel else "Needs a GPU") in row.note


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
    reason = baselines.why_not_dgl()
    found = layers.measured(True, silent)
    assert len(found) == 8
    timed, absent = [], []
    for row in layers.rows(found):
        (timed if row.ours is not None else absent).append(row)
    assert all(row.ours is not None and row.ours > 0 and row.paper is None for row in timed)
    names = {row.figure.partition(" on this processor")[0] for row in timed}
    assert {f"{family} over PyG" for family in layers._families()} <= names
    assert {f"{family} over torch's kept sparse product" for family in ("min", "sum (GCN)")} <= names
    assert [row.note for row in absent] == ([] if reason is None else [f"Needs DGL: {reason}."])
    (chart,) = layers.charts(found)
    assert [series.label for series in chart.series] == ["PyG (baseline)", "onehop"]
    wrong = layers.Timed("GATv2", "forward", "cora twin", wrong={"onehop": "results differ by 0.5"})
    assert layers.rows([wrong])[0].note == "Not timed: results differ by 0.5."
    assert layers.charts([wrong]) == ()


def test_a_baseline_with_other_numbers_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(layer: Any, edges: baselines.Edges) -> baselines.Forward:
        return lambda x: 2 * layer(x, edges.edge_index)

    monkeypatch.setattr(layers, "_TWIN", Twin("cora", 1.0))
    monkeypatch.setattr(layers, "_QUICK_ROUNDS", 1)
    least = layers._families()["min"]
    monkeypatch.setattr(layers, "_families", lambda: {"min": least})
    monkeypatch.setattr(baselines, "by_sparse_products", twice)
    for one in layers.measured(True, silent):
        assert one.wrong == {baselines.SPARSE: "results differ by 1"}
        assert baselines.SPARSE not in one.times


def test_without_pyg_the_rows_that_need_it_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isplib.curve, "measured", lambda quick, progress: [])
    monkeypatch.setattr(reordering, "KINDS", ())
    for module in (io_aware, isplib):
        monkeypatch.setattr(module, "import_reason", lambda name: f"{name} cannot be imported (it is gone)")
        rows = module.reproduce(quick=True).rows
        assert "Needs PyG: torch_geometric cannot be imported" in rows[-1].note
        assert rows[-1].ours is None


def timed(model: str, graph: str, **seconds: float) -> ModelResult:
    times = {name.replace("_", "-"): Times((value,)) for name, value in seconds.items()}
    return ModelResult(
        graph, model, 32, times={"onehop": Times((1.0,)), "pyg-edge_index": times.pop("pyg"), **times}
    )


def test_published_epochs_are_compared_with_all_that_they_may_be_of() -> None:
    found = [
        timed("gcn", "reddit twin x 0.1", pyg=9.0, pyg_torch_csr=4.0),
        timed("gcn", "proteins twin", pyg=5.0),
        timed("gcn", "amazonproducts twin", pyg=99.0),
        timed("gin", "reddit2 twin", pyg=7.0),
    ]
    rows = [isplib.headline(each, found) for each in isplib.PUBLISHED]
    assert [row.paper for row in rows] == [54.0, 32.0, 23.0, 51.0, 93.0, 27.0]
    assert [row.ours for row in rows] == [99.0, None, None, 7.0, 9.0, 99.0]
    # A model's ratio spans all that it may be of; a best is compared with our best alone.
    assert (rows[0].low, rows[0].high, rows[0].verdict) == (4.0, 99.0, "undecided")
    assert (rows[0].low_by, rows[0].high_by) == (
        "gcn over pyg-torch-csr on the reddit twin x 0.1",
        "gcn over pyg-edge_index on the amazonproducts twin",
    )
    # Of large graphs Reddit and proteins alone.
    assert (rows[4].low, rows[4].high, rows[4].verdict) == (9.0, 9.0, "differs")
    assert "the baseline would have to be faster" in rows[5].note
    assert "speed up iSpLib's kernels" in rows[4].note
    assert all("Ours is onehop, not iSpLib" in row.note for row in rows if row.ours is not None)
    assert "gcn over pyg-edge_index on the reddit twin x 0.1" in rows[4].note
    assert all(row.headline for row in rows)


def test_epochs_of_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isplib.epochs, "TWINS", (Twin("cora", 1.0),))
    monkeypatch.setattr(isplib.epochs, "_ROUNDS", 1)
    found = isplib.epochs.measured(quick=True)
    rows = isplib.epochs.rows(found)
    assert [one.model for one in found] == ["gcn", "sage-sum", "sage", "gin"]
    assert {row.figure.split(",")[0] for row in rows} >= {
        "training epoch over pyg-edge_index",
        "training epoch over pyg-torch-csr",
    }
    assert all(row.ours is not None for row in rows if "edge_index" in row.figure)
    assert isplib.epochs.charts(found)[0].groups[0] == "gcn cora twin"
    assert "iSpLib" in isplib.over_isplib(found).figure


def test_epochs_whose_losses_differ_have_no_ratio() -> None:
    apart = {"onehop": "its losses are 0.25 off those of pyg-edge_index"}
    wrong = ModelResult("cora twin", "gcn", 32, times={"pyg-edge_index": Times((4.0,))}, wrong=apart)
    assert isplib.epochs.rows([wrong])[0].note == f"Not timed: {apart['onehop']}."
    assert isplib.epochs.charts([wrong]) == ()
    assert isplib.epochs.rows([timed("gcn", "cora twin", pyg=2.0)])[0].ours == 2.0


def width(columns: int, *gains: float) -> isplib.curve.Width:
    names = ("generated", "built-in", "torch")
    return isplib.curve.Width(
        columns,
        {name: Ratio(gain, gain - 0.1, gain + 0.1, 5) for name, gain in zip(names, gains, strict=True)},
        "x",
    )


def test_the_peak_of_the_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        width(16, 1.2, 1.0, 0.5),
        width(32, 1.9, 1.7, 0.5),
        width(64, 2.0, 1.8, 0.5),
        width(128, 1.5, 1.5, 0.4),
    ]
    monkeypatch.setattr(isplib.curve, "processor_name", lambda: "AMD EPYC")
    intel, amd = isplib.curve.rows(found)
    assert (intel.paper, intel.ours, intel.note) == (32, None, "Needs a processor by Intel.")
    # 32 columns gain as much, as far as the quartiles tell.
    assert (amd.paper, amd.ours, amd.low, amd.high, amd.verdict) == (64, 64, 32, 64, "agrees")
    (chart,) = isplib.curve.charts(found)
    assert chart.groups == ("16", "32", "64", "128")
    assert isplib.curve.charts([]) == ()
    assert isplib.curve.rows([])[1].note == "Needs kernels for this processor in the build."


def test_gains_at_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isplib.curve, "_TWIN", Twin("cora", 1.0))
    monkeypatch.setattr(isplib.curve, "_QUICK_WIDTHS", (8,))
    monkeypatch.setattr(isplib.curve, "_QUICK_BUDGET_S", 0.01)
    before = native.extension.selected_isa()
    found = isplib.curve.measured(True, silent)
    assert native.extension.selected_isa() == before
    for one in found:
        assert one.columns == 8
        assert one.gains.keys() == {"generated", "built-in", "torch"}
