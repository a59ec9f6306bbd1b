"""Automatic tuning under the patch."""

import logging
import os
import subprocess
import sys

import pytest
import torch
from torch_geometric.nn import GraphConv, SAGEConv

import onehop
from onehop import ArgumentError
from onehop.integrations import tuning
from onehop.plans import CpuPlan, tuned


@pytest.fixture(autouse=True)
def table(own_cache, monkeypatch, bounds):
    bounds(tuned_work=1)
    monkeypatch.setattr(tuning, "BUDGET_S", 0.2)
    tuned.forget()
    yield
    tuning.give_up()
    tuned.forget()


@pytest.fixture
def tunings(monkeypatch):
    """Every graph that is tuned from here on; none is measured."""
    calls = []

    def noted(graph, width, **options):
        calls.append((graph.num_edges, width, options["reduce"], options["backward"]))
        yield
        return RESULT

    monkeypatch.setattr("onehop.tuner.tuning.tuning_steps", noted)
    return calls


class Time:
    """A clock that goes on when something is said to take time."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Time()
    monkeypatch.setattr(tuning, "_clock", clock)
    return clock


@pytest.fixture
def steps(monkeypatch, clock):
    """Has tunings take steps of so many seconds; lists each step with the time, and the end."""
    told = []

    def begin(seconds, before=lambda: None):
        def tuning_steps(graph, width, **options):
            try:
                for each in seconds:
                    before()
                    clock.now += each
                    told.append((width, options["clock"]()))
                    yield
                return RESULT
            finally:
                told.append((width, "end"))

        monkeypatch.setattr("onehop.tuner.tuning.tuning_steps", tuning_steps)
        return told

    return begin


@pytest.fixture
def layer():
    return SAGEConv(8, 4)


RESULT = onehop.TuningResult("aggregate", "sum", (), {}, 0.0)


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


@pytest.mark.parametrize(
    "where", ["onehop.tuner.tuning.tuning_steps", "onehop.tuner.tuning.unsuitable", "a slice"]
)
def test_an_error_of_tuning_is_not_the_callers(where, edges, monkeypatch, caplog):
    layer, edge_index, x = GraphConv(8, 4), edges(20, 20, 60), torch.randn(20, 8, requires_grad=True)

    def failing(*args, **options):
        raise RuntimeError("no kernel")

    def failing_slice(*args, **options):
        yield
        raise RuntimeError("no kernel")

    with onehop.patch():
        expected = layer(x, edge_index)
    if where == "a slice":
        monkeypatch.setattr("onehop.tuner.tuning.tuning_steps", failing_slice)
    else:
        monkeypatch.setattr(where, failing)
    with onehop.patch(tune="auto"), caplog.at_level(logging.WARNING, logger="onehop"):
        for _ in range(3 * tuning.SIGHTINGS):
            out = layer(x, edge_index)
            out.sum().backward()
            torch.testing.assert_close(out, expected)
            epochs(layer, edge_index, 1)
    (record,) = caplog.records
    assert "is not tuned any more" in record.message
    assert record.exc_info is not None
    assert tuning._auto.waiting == []


def test_mini_batches_never_are(edges, tunings):
    layer = SAGEConv(8, 4)
    with onehop.patch(tune="auto"):
        for batch in range(4 * tuning.SIGHTINGS):
            epochs(layer, edges(20, 20, 60, seed=batch), 1)
    assert tunings == []


def test_small_work_never_is(edges, tunings, bounds):
    bounds(tuned_work=60 * 8 + 1)
    with onehop.patch(tune="auto"):
        epochs(SAGEConv(8, 4), edges(20, 20, 60), 10)
    assert tunings == []


def test_nothing_is_tuned_unless_asked_for(edge_index, layer, tunings):
    with onehop.patch():
        epochs(layer, edge_index, 10)
    with onehop.patch(tune="auto"):
        pass
    with onehop.patch():  # the mode ended with the patch that had it
        epochs(layer, edge_index, 10)
    assert tunings == []


def test_in_workers_a_line_says_why_not(edges, tunings, monkeypatch, caplog):
    monkeypatch.setattr("onehop.tuner.tuning.unsuitable", lambda: "this is a worker process")
    with onehop.patch(tune="auto"), caplog.at_level(logging.INFO, "onehop"):
        epochs(SAGEConv(8, 4), edges(20, 20, 60), 10)
    assert tunings == []
    assert "is not tuned: this is a worker process" in caplog.text


def test_a_call_waits_for_a_slice_and_the_clock_of_the_budget_for_the_next_call(
    edge_index, layer, clock, steps
):
    log = steps([0.02] * 6)
    with onehop.patch(tune="auto", reuse=False):
        epochs(layer, edge_index, tuning.SIGHTINGS)
        assert log == [(8, pytest.approx(0.02)), (8, pytest.approx(0.04))]
        clock.now += 1000  # the program's own time is not the tuner's
        epochs(layer, edge_index, 1)
        assert log[2:] == [(8, pytest.approx(0.06)), (8, pytest.approx(0.08))]
        epochs(layer, edge_index, 10)
    assert log[4:] == [(8, pytest.approx(0.10)), (8, pytest.approx(0.12)), (8, "end")]


def test_of_long_measurements_a_call_waits_for_one(edge_index, layer, steps):
    log = steps([0.3] * 3)
    with onehop.patch(tune="auto", reuse=False):
        epochs(layer, edge_index, tuning.SIGHTINGS)
        assert len(log) == 1
        epochs(layer, edge_index, 1)
        assert len(log) == 2


def test_one_width_is_tuned_after_the_other(edges, steps):
    log = steps([1.0] * 2)
    edge_index = edges(20, 20, 60)
    with onehop.patch(tune="auto", reuse=False, associate=False):
        for _ in range(tuning.SIGHTINGS + 20):
            epochs(SAGEConv(8, 4), edge_index, 1, width=8)
            epochs(SAGEConv(16, 4), edge_index, 1, width=16)
    assert [(width, told == "end") for width, told in log] == [
        (8, False), (8, False), (8, True), (16, False), (16, False), (16, True),
    ]  # fmt: skip


def test_an_interruption_reaches_the_program_and_ends_the_tuning(edge_index, layer, steps):
    def interrupt():
        if log:
            raise KeyboardInterrupt

    log = steps([1.0] * 3, interrupt)
    with onehop.patch(tune="auto", reuse=False):
        epochs(layer, edge_index, tuning.SIGHTINGS)
        with pytest.raises(KeyboardInterrupt):
            epochs(layer, edge_index, 1)
        epochs(layer, edge_index, 5)
    assert log[1:] == [(8, "end")]


def test_a_function_goes_on_with_it_at_its_next_call_and_unpatch_ends_it(edge_index, layer, steps):
    log = steps([1.0] * 9)
    train = onehop.autotune(lambda: layer(torch.randn(20, 8), edge_index))
    for _ in range(tuning.SIGHTINGS + 2):
        train()
    assert [told for _, told in log] == [1.0, 2.0, 3.0]
    with onehop.patch():
        onehop.unpatch()
    assert log[3:] == [(8, "end")]


def test_what_was_found_is_kept_when_it_is_given_up(edge_index, layer, monkeypatch):
    monkeypatch.setattr("onehop.tuner.cpu._timed", lambda call, plan: 1e-3)
    monkeypatch.setattr(tuning, "SLICE_S", 0.0)  # one measurement a call
    with onehop.patch(tune="auto", reuse=False):
        epochs(layer, edge_index, tuning.SIGHTINGS + 4)
    tuning.give_up()
    tuned.forget()  # as another process
    graph = onehop.Graph.from_edge_index(edge_index, num_nodes=20)
    found = tuned.known(tuned.case_of(graph, "sum", False, 8, torch.float32))
    assert found is not None
    assert not found.finished


def test_what_was_found_is_kept_when_the_program_ends(table):
    program = """
import torch, onehop
from torch_geometric.nn import SAGEConv
from onehop.integrations import tuning
tuning.SLICE_S = 0.0
layer, edge_index = SAGEConv(8, 4), torch.arange(60).view(2, 30) % 20
with onehop.patch(tune="auto", reuse=False):
    for _ in range(tuning.SIGHTINGS + 3):
        layer(torch.randn(20, 8), edge_index)
"""
    subprocess.run(
        [sys.executable, "-c", program], check=True, env=os.environ | {"ONEHOP_THRESHOLDS": "none"}
    )
    graph = onehop.Graph.from_edge_index(torch.arange(60).view(2, 30) % 20, num_nodes=20)
    assert tuned.known(tuned.case_of(graph, "sum", False, 8, torch.float32)) is not None


def test_a_forked_process_does_not_go_on_with_it(edge_index, layer, tunings, monkeypatch):
    with onehop.patch(tune="auto", reuse=False):
        monkeypatch.setattr(tuning._auto, "process", -1)
        epochs(layer, edge_index, tuning.SIGHTINGS + 1)
        tuning.give_up()
        assert len(tuning._auto.waiting) == 1
        assert tunings == []


def test_compiled_layers_are_not_tuned(edge_index, layer, tunings):
    compiled = torch.compile(layer, backend="eager")
    with onehop.patch(tune="auto", reuse=False):
        for _ in range(2 * tuning.SIGHTINGS):
            compiled(torch.randn(20, 8), edge_index)
        assert tunings == []
        epochs(layer, edge_index, tuning.SIGHTINGS)
    assert len(tunings) == 1


def test_autotune_tunes_inside_the_function_alone(edge_index, layer, edges, tunings):
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


def test_the_patch_tunes_for_real(edge_index, layer, caplog):
    x = torch.randn(20, 8)
    before = layer(x, edge_index)
    with onehop.patch(tune="auto"), caplog.at_level(logging.INFO, "onehop"):
        for _ in range(tuning.SIGHTINGS + 200):
            torch.testing.assert_close(layer(x + 0, edge_index), before)
    assert "was tuned in" in caplog.text


def test_explain_shows_what_a_plan_was_chosen_by(edge_index, layer):
    graph = onehop.Graph.from_edge_index(edge_index, num_nodes=20)
    case = tuned.case_of(graph, "sum", False, 8, torch.float32)
    plan = CpuPlan(edges_per_item=77)
    tuned.install([tuned.Tuned(case, plan, 1e-3, 2e-3, 3e-3, 4e-3, tried=12)])
    text = str(onehop.explain(layer, torch.randn(20, 8), edge_index, verbose=True))
    assert "edges_per_item=77" in text
    assert "predicted 1 ms, measured 2 ms, default plan 3 ms, torch CSR 4 ms (of 12 plans measured)" in text
