"""Automatic tuning under the patch."""

import logging

import pytest
import torch
from torch_geometric.nn import GraphConv, SAGEConv

import onehop
from onehop import ArgumentError
from onehop.integrations import tuning
from onehop.plans import CpuPlan, tuned


@pytest.fixture(autouse=True)
def table(own_cache, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_WORK", 1)
    monkeypatch.setattr(tuning, "BUDGET_S", 0.2)
    tuned.forget()
    yield
    tuned.forget()


@pytest.fixture
def tunings(monkeypatch):
    """Every call of ``onehop.tune`` from here on; none is run."""
    calls = []

    def noted(graph, width, **options):
        calls.append((graph.num_edges, width, options["reduce"], options["backward"]))
        return onehop.TuningResult("aggregate", "sum", (), {}, 0.0)

    monkeypatch.setattr(tuning, "tune", noted)
    return calls


def epochs(layer, edge_index, count, width=8):
    for _ in range(count):
        layer(torch.randn(20, width), edge_index).sum().backward()


def test_a_graph_that_comes_back_is_tuned_once(edges, tunings):
    layer, edge_index = SAGEConv(8, 4, aggr="mean"), edges(20, 20, 60)
    with onehop.patch(tune="auto", reuse=False):
        epochs(layer, edge_index, tuning.SIGHTINGS - 1)
        assert tunings == []
        epochs(layer, edge_index, 20)
    assert tunings == [(60, 8, "mean", False)]


def test_gradients_are_tuned_where_there_are_any(edges, tunings):
    layer, edge_index = GraphConv(8, 4), edges(20, 20, 60)
    with onehop.patch(tune="auto"):
        for _ in range(tuning.SIGHTINGS):
            layer(torch.randn(20, 8, requires_grad=True), edge_index).sum().backward()
    # The linear step comes first, as that leaves fewer columns: those are tuned.
    assert tunings == [(60, 4, "sum", True)]


def test_mini_batches_never_are(edges, tunings):
    layer = SAGEConv(8, 4)
    with onehop.patch(tune="auto"):
        for batch in range(4 * tuning.SIGHTINGS):
            epochs(layer, edges(20, 20, 60, seed=batch), 1)
    assert tunings == []


def test_small_work_never_is(edges, tunings, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_WORK", 60 * 8 + 1)
    with onehop.patch(tune="auto"):
        epochs(SAGEConv(8, 4), edges(20, 20, 60), 10)
    assert tunings == []


def test_nothing_is_tuned_unless_asked_for(edges, tunings):
    layer, edge_index = SAGEConv(8, 4), edges(20, 20, 60)
    with onehop.patch():
        epochs(layer, edge_index, 10)
    with onehop.patch(tune="auto"):
        pass
    with onehop.patch():  # the mode ended with the patch that had it
        epochs(layer, edge_index, 10)
    assert tunings == []


def test_in_workers_a_line_says_why_not(edges, tunings, monkeypatch, caplog):
    monkeypatch.setattr(tuning, "unsuitable", lambda: "this is a worker process")
    with onehop.patch(tune="auto"), caplog.at_level(logging.INFO, "onehop"):
        epochs(SAGEConv(8, 4), edges(20, 20, 60), 10)
    assert tunings == []
    assert "is not tuned: this is a worker process" in caplog.text


def test_autotune_tunes_inside_the_function_alone(edges, tunings):
    layer, edge_index = SAGEConv(8, 4), edges(20, 20, 60)

    @onehop.autotune
    def train(count):
        """Doc."""
        assert onehop.patched()
        epochs(layer, edge_index, count)
        return count

    assert train(7) == 7
    assert train.__doc__ == "Doc."
    assert onehop.patched() == ()
    with onehop.patch():
        epochs(layer, edges(20, 20, 60), 7)
    assert len(tunings) == 1


def test_autotune_refuses_generators():
    def steps():
        yield

    with pytest.raises(ArgumentError, match="generator or coroutine"):
        onehop.autotune(steps)


def test_another_mode_is_refused_and_patches_nothing():
    with pytest.raises(ArgumentError, match="tune: expected one of auto, never, got 'always'"):
        onehop.patch(tune="always")
    assert onehop.patched() == ()


def test_the_patch_tunes_for_real(edges, caplog):
    layer, edge_index = SAGEConv(8, 4), edges(20, 20, 60)
    x = torch.randn(20, 8)
    before = layer(x, edge_index)
    with onehop.patch(tune="auto"), caplog.at_level(logging.INFO, "onehop"):
        for _ in range(tuning.SIGHTINGS + 1):
            torch.testing.assert_close(layer(x + 0, edge_index), before)
    assert "was tuned in" in caplog.text


def test_explain_shows_what_a_plan_was_chosen_by(edges):
    layer, edge_index = SAGEConv(8, 4), edges(20, 20, 60)
    graph = onehop.Graph.from_edge_index(edge_index, num_nodes=20)
    case = tuned.case_of(graph, "sum", False, 8, torch.float32)
    plan = CpuPlan(edges_per_item=77)
    tuned.install([tuned.Tuned(case, plan, 1e-3, 2e-3, 3e-3, 4e-3, tried=12)])
    text = str(onehop.explain(layer, torch.randn(20, 8), edge_index))
    assert "edges_per_item=77" in text
    assert "predicted 1 ms, measured 2 ms, default plan 3 ms, torch CSR 4 ms (of 12 plans measured)" in text
