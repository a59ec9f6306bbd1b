"""Parts of epochs, and their floors."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import onehop
from onehop.bench import floors, plots
from onehop.bench.floors import (
    AGGREGATION,
    DROPOUT,
    OTHER,
    PARTS,
    PRODUCTS,
    Breakdown,
    Roofs,
    of_parts,
    part_of,
    product_calls,
    shares,
)
from onehop.bench.models import ModelCase, measure_model
from onehop.bench.variants import ONEHOP, PYG
from onehop.bench.work import EpochWork, Product
from tests.bench.small_graphs import simple_workload, task

pytest.importorskip("torch_geometric")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("aten::mm", PRODUCTS),
        ("aten::addmm", PRODUCTS),
        ("mkldnn::_linear_pointwise", PRODUCTS),
        ("onehop::linear", PRODUCTS),
        ("aten::dropout", DROPOUT),
        ("aten::bernoulli_", DROPOUT),
        ("onehop::dropout", DROPOUT),
        ("_DroppedBackward", DROPOUT),
        ("_Masked", DROPOUT),
        ("_LinearStep", PRODUCTS),
        ("_PrefixProductBackward", PRODUCTS),
        ("onehop::aggregate", AGGREGATION),
        ("_RecordedBackward", AGGREGATION),
        ("_RecomputedBackward", AGGREGATION),
        ("aten::scatter_add_", AGGREGATION),
        ("aten::index_select", AGGREGATION),
        ("aten::relu", None),
        ("aten::native_batch_norm", None),
        ("aten::mul", None),
        ("autograd::engine::evaluate_function: MulBackward0", None),
    ],
)
def test_names_tell_parts(name, part):
    assert part_of(name) == part


def test_shares_add_up_and_belong_to_what_ran():
    x = torch.randn(200, 300)
    found = shares(lambda: x @ x.t(), epochs=20)
    assert sum(found.values()) == pytest.approx(1)
    assert set(found) == set(PARTS)
    assert found[PRODUCTS] > 0
    assert found[DROPOUT] == found[AGGREGATION] == 0


def event(name, own, *children, number=-1):
    return SimpleNamespace(
        name=name, self_cpu_time_total=own, cpu_children=children, sequence_nr=number, cpu_parent=None
    )


def test_the_backward_pass_of_dropout_is_dropout():
    node = "autograd::engine::evaluate_function: MulBackward0"
    found = of_parts(
        [
            event("aten::dropout", 1, event("aten::bernoulli_", 2), event("aten::mul", 4, number=7)),
            event("aten::mul", 8, number=8),
            event(node, 16, event("MulBackward0", 32, event("aten::mul", 64)), number=7),
            event(node, 128, event("MulBackward0", 256, event("aten::mul", 512)), number=8),
        ]
    )
    assert found == {
        AGGREGATION: 0,
        PRODUCTS: 0,
        DROPOUT: 1 + 2 + 4 + 16 + 32 + 64,
        OTHER: 8 + 128 + 256 + 512,
    }


def test_events_count_for_the_nearest_part_around_them():
    found = of_parts(
        [
            event("_Recorded", 1, event("onehop::aggregate", 2, event("aten::empty", 4))),
            event("aten::linear", 8, event("aten::t", 16), event("aten::addmm", 32)),
            event("_LinearStep", 64, event("onehop::aggregate", 128)),
            event("onehop::attention", 256, event("aten::bernoulli_", 512)),
            event("Optimizer.step#Adam.step", 1024, event("aten::add_", 2048)),
        ]
    )
    assert found == {
        AGGREGATION: 1 + 2 + 4 + 256,
        PRODUCTS: 8 + 16 + 32 + 64 + 128,
        DROPOUT: 512,
        OTHER: 1024 + 2048,
    }


def test_autograd_numbers_the_backward_step_of_dropout_as_its_forward_step():
    x = torch.randn(50, 30, requires_grad=True)
    assert shares(lambda: F.dropout(x).backward(torch.ones(50, 30)))[DROPOUT] > 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        F.dropout(x).backward(torch.ones(50, 30))
    numbers = {e.name: e.sequence_nr for e in profiler.events()}
    assert numbers["autograd::engine::evaluate_function: MulBackward0"] == numbers["aten::dropout"] >= 0


def test_dropout_in_native_code_is_seen(monkeypatch):
    native = lambda x: x  # noqa: E731
    monkeypatch.setattr(F, "dropout", native)
    assert shares(lambda: F.dropout(1), epochs=10)[DROPOUT] > 0
    assert F.dropout is native


def test_sums_under_the_patch_are_aggregation():
    x, graph = torch.randn(40, 16, requires_grad=True), simple_workload().graph

    def both():
        onehop.aggregate(graph, x).sum().backward()

    found = shares(both)
    assert found[AGGREGATION] > 0
    assert found[PRODUCTS] == found[DROPOUT] == 0


def test_the_parts_of_a_patched_epoch_add_up_to_it():
    result = measure_model(ModelCase(task(), simple_workload(), "ogb-gcn", 16), [ONEHOP, PYG], rounds=1)
    found = result.breakdown
    assert found.epoch_s == result.times["onehop"].median_s
    assert sum(found.seconds.values()) == pytest.approx(found.epoch_s)
    assert all(found.shares[part] > 0 for part in PARTS)
    assert all(found.floor_s[part] > 0 for part in PARTS)
    assert found.of_floor == pytest.approx(found.epoch_s / sum(found.floor_s.values()))


def test_json_keeps_the_breakdown():
    found = Breakdown(
        2.0, dict(zip(PARTS, (0.5, 0.25, 0.125, 0.125), strict=True)), dict.fromkeys(PARTS, 0.25)
    )
    read = json.loads(json.dumps(found.to_dict()))
    assert read == {
        "shares": {"aggregation": 0.5, "products": 0.25, "dropout": 0.125, "other": 0.125},
        "seconds": {"aggregation": 1.0, "products": 0.5, "dropout": 0.25, "other": 0.25},
        "floor_s": dict.fromkeys(PARTS, 0.25),
        "x_of_floor": 2.0,
    }
    assert Breakdown(1.0, found.shares).to_dict()["x_of_floor"] is None


def test_no_breakdown_without_onehop():
    result = measure_model(ModelCase(task(), simple_workload(), "gcn", 8), [PYG], rounds=1)
    assert result.breakdown is None
    assert result.to_dict()["breakdown"] is None


class Known(Roofs):
    """Roofs of round numbers."""

    def gather_gbps(self, width):
        return float(width)

    def copy_s(self, shape):
        return shape[0] * shape[1] / 100


def test_a_floor_counted_by_hand(monkeypatch):
    monkeypatch.setattr(floors, "interleave", lambda calls, rounds: dict.fromkeys(calls, FixedTimes()))
    work = EpochWork(
        Counter({16: 32 * 10**9, 4: 8 * 10**9}),
        Counter({Product(2, 3, 4): 5}),
        Counter({(10, 10): 2}),
        Counter({(5, 10): 4, (1, 1): 1}),
    )
    assert Known(simple_workload()).floor(work) == pytest.approx(
        {AGGREGATION: 4.0, PRODUCTS: 5 * 0.125, DROPOUT: 2.0, OTHER: 2.01}
    )


class FixedTimes:
    min_s = 0.125


def test_products_with_sparse_features_take_the_faster_way(monkeypatch):
    monkeypatch.setattr(floors, "interleave", lambda calls, rounds: dict.fromkeys(calls, FixedTimes()))
    roofs = Known(simple_workload())
    # 100 non-zeros, rows of 4 floats and an index, 50 rows written: at 4 GB/s.
    expected = (100 * (16 + 4) + 50 * 16) / 4e9
    assert roofs.product_s(Product(50, 1000, 4, 100)) == pytest.approx(expected)
    # The gradient of that weight: 1000 rows of 4 floats written.
    expected = (100 * (16 + 4) + 1000 * 16) / 4e9
    assert roofs.product_s(Product(4, 50, 1000, 100)) == pytest.approx(expected)
    assert roofs.product_s(Product(50, 1000, 4, 10**9)) == 0.125
    assert roofs.product_s(Product(50, 1000, 4)) == 0.125


def test_roofs_are_measured_once(monkeypatch):
    roofs = Roofs(simple_workload(), rounds=1)
    first = roofs.gather_gbps(16), roofs.product_s(Product(8, 9, 10)), roofs.copy_s((8, 9))
    assert all(value > 0 for value in first)
    monkeypatch.setattr(floors, "interleave", None)
    monkeypatch.setattr(floors, "gather_roof", None)
    assert (roofs.gather_gbps(9), roofs.product_s(Product(8, 9, 10)), roofs.copy_s((8, 9))) == first


def test_every_library_computes_the_same_product():
    results = [call() for call in product_calls(5, 7, 3).values()]
    assert all(torch.equal(result, torch.full((5, 3), 7.0)) for result in results)


def test_the_picture_of_parts_is_drawn(tmp_path):
    results = [
        {"graph": graph, "model": model, "hidden": 16, "breakdown": found}
        for graph in ("arxiv", "cora")
        for model, found in (
            ("a", Breakdown(1.0, dict.fromkeys(PARTS, 0.25), dict.fromkeys(PARTS, 0.125)).to_dict()),
            ("b", Breakdown(1.0, dict.fromkeys(PARTS, 0.25)).to_dict()),
            ("c", None),
        )
    ]
    plots.plot_parts(results, "a machine", tmp_path / "parts.png")
    assert (tmp_path / "parts.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    plots.plot_parts([], "a machine", tmp_path / "none.png")
    assert (tmp_path / "none.png").exists()
