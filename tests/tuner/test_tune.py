"""``onehop.tune``: from arguments to a plan that is used, within its budget."""

import dataclasses
import json
import multiprocessing
import types

import pytest
import torch

import onehop
from onehop import ArgumentError, ConfigurationError, Graph, TuningResult
from onehop.backends.cpu import CpuBackend
from onehop.datasets import chung_lu
from onehop.plans import CpuPlan, store, tuned
from onehop.tuner.search import Search
from onehop.tuner.speeds import speeds
from tests.pictures import drawn, faults

pytestmark = pytest.mark.usefixtures("_calibrated")


@pytest.fixture(scope="module")
def graph():
    return Graph.from_edge_index(chung_lu(2000, 60_000), num_nodes=2000)


def prefers_short_items(plan):
    return 1e-3 if plan.edges_per_item == 512 else 2e-3


def test_the_best_plan_is_found_kept_and_used(graph, pretend):
    pretend(prefers_short_items)
    before = CpuBackend().plan_of_sum(graph, False, 16, torch.float32)
    result = onehop.tune(graph, 16, budget_s=20)
    assert result.plan.edges_per_item == 512
    assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32) == result.plan != before
    assert CpuBackend().plan_of_sum(graph, True, 16, torch.float32).edges_per_item == 512
    tuned.forget()  # as another process
    assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32) == result.plan


def test_results_are_the_same_with_and_without(graph, generator):
    x = torch.randn(2000, 16, generator=generator).requires_grad_()
    grad = torch.randn(2000, 16, generator=generator)

    def both():
        out = onehop.aggregate(graph, x, reduce="max")
        total = onehop.aggregate(graph, x)
        return out, total, *torch.autograd.grad([out, total], x, [grad, grad])

    before = both()
    onehop.tune(graph, 16, budget_s=0.3, again=True)
    onehop.tune(graph, 16, reduce="max", budget_s=0.3)
    for name, a, b in zip(("max", "sum", "grad"), before, both(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("op", "reduce", "operations"),
    [
        ("aggregate", "mean", ["sum", "sum"]),
        ("aggregate", "min", ["extremum", "extremum_grad"]),
        ("sddmm", "sum", ["sddmm"]),
        ("edge_softmax", "sum", ["edge_softmax"]),
        ("attention", "sum", ["attention"]),
    ],
)
def test_every_operation_can_be_tuned(graph, op, reduce, operations, monkeypatch):
    # Run, but on a clock that no other program can disturb.
    monkeypatch.setattr("onehop.tuner.cpu._timed", lambda call, plan: 1e-3 * len(call(plan)) / 2000)
    result = onehop.tune(graph, 8, op, reduce, budget_s=60)
    assert [entry.case.operation for entry in result.entries] == operations
    assert all(entry.tried for entry in result.entries)


def test_what_was_tuned_is_not_tuned_again_unless_asked_for(graph, pretend):
    calls = []
    pretend(lambda plan: calls.append(plan) or prefers_short_items(plan))
    first = onehop.tune(graph, 16, budget_s=20)
    count = len(calls)
    assert count > 10
    assert onehop.tune(graph, 16, budget_s=20).entries == first.entries
    assert len(calls) == count
    onehop.tune(graph, 16, budget_s=20, again=True)
    assert len(calls) > count


def test_an_interrupted_run_is_continued(graph, pretend):
    calls = []

    def cost(plan):
        calls.append(plan)
        if len(calls) == 250:
            raise KeyboardInterrupt
        return prefers_short_items(plan)

    pretend(cost)
    with pytest.raises(KeyboardInterrupt):
        onehop.tune(graph, [16, 32, 64], budget_s=30)
    tuned.forget()
    first = tuned.known(tuned.case_of(graph, "sum", False, 16, torch.float32))
    assert first.finished
    assert first.plan.edges_per_item == 512
    left = len(calls)
    result = onehop.tune(graph, [16, 32, 64], budget_s=30)
    assert result.entries[0] == first
    assert result.widths == (16, 32, 64)
    whole = len(calls) - left
    onehop.tune(graph, [16, 32, 64], budget_s=30, again=True)
    assert whole < len(calls) - left - whole  # the second run had less to do


def test_an_unproven_plan_begins_the_next_search(graph, pretend, monkeypatch):
    began = []
    run = Search.run

    def spied(self, starts):
        starts = list(starts)
        began.append(starts)
        return run(self, starts)

    monkeypatch.setattr(Search, "run", spied)
    pretend(lambda plan: 1.0)
    odd = CpuPlan(edges_per_item=1234, prefetch=7)
    case = tuned.case_of(graph, "sum", False, 16, torch.float32)
    tuned.install([tuned.Tuned(case, odd, 1.0, finished=False)])
    onehop.tune(graph, 16, backward=False, budget_s=30)
    assert odd in began[0]


def test_the_budget_is_kept(graph, pretend, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("onehop.tuner.search.time", types.SimpleNamespace(perf_counter=lambda: now[0]))

    def cost(plan):
        now[0] += 0.05 + 1e-3 * plan.prefetch
        return 0.05 + 1e-3 * plan.prefetch

    pretend(cost)
    for seconds in (1.0, 10.0, 60.0):
        now[0] = 0.0
        onehop.tune(graph, [16, 48], budget_s=seconds, again=True)
        assert 0.3 < now[0] <= seconds


def test_a_budget_for_nothing_leaves_the_default(graph):
    before = CpuBackend().plan_of_sum(graph, False, 64, torch.float32)
    result = onehop.tune(graph, 64, budget_s=1e-6)
    assert result.plan == before
    assert result.curve[0].tuned_s is None
    assert result.curve[0].predicted_s > 0
    with pytest.raises(ArgumentError, match="nothing was measured within the budget"):
        result.plot("curve.png")


def test_progress_is_told(graph, pretend):
    pretend(prefers_short_items)
    told = []
    onehop.tune(graph, [8, 16], budget_s=30, progress=lambda what, done: told.append((what, done)))
    assert {what for what, _ in told} >= {"width 8, forward", "width 16, backward", "done"}
    assert all(0 <= done <= 1 for _, done in told)
    assert told[-1] == ("done", 1.0)


def test_fields_that_are_not_free_stay_as_they_are(graph, pretend):
    pretend(lambda plan: 1.0 - plan.prefetch / 100 + (plan.edges_per_item != 512))
    result = onehop.tune(graph, 16, fields=["prefetch"], backward=False, budget_s=200)
    assert result.plan.prefetch == 64
    assert result.plan.edges_per_item != 512
    assert not store.path().exists()


def test_lossy_plans_are_tried_when_allowed_and_not_kept(graph, pretend):
    pretend(lambda plan: 1e-3 if plan.storage == "bfloat16" else 2e-3)
    assert onehop.tune(graph, 16, budget_s=20).plan.storage == "same"
    assert onehop.tune(graph, 16, budget_s=20, lossy=True).plan.storage == "bfloat16"
    assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32).storage == "bfloat16"
    tuned.forget()
    assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32).storage == "same"


def test_orders_are_tried_and_those_not_taken_dropped(pretend, monkeypatch, generator):
    graph = Graph.from_edge_index(torch.randint(0, 9000, (2, 40_000), generator=generator), num_nodes=9000)
    pretend(lambda plan: 1e-3 if plan.ordering == "degree" else 2e-3)
    monkeypatch.setattr("onehop.tuner.candidates.processor.caches", lambda: {1: 1 << 15, 2: 1 << 16})
    result = onehop.tune(graph, 16, backward=False, budget_s=50)
    assert result.plan.ordering == "degree"
    assert result.entries[0].ordering_s > 0
    assert set(graph.ordered) == {("degree", False)}
    assert "has paid for itself after" in str(result)


def test_a_result_prints_short_lines_and_its_plans_on_request(graph, pretend):
    pretend(prefers_short_items)
    result = onehop.tune(graph, [8, 16], budget_s=20)
    entry = dataclasses.replace(
        result.entries[0], ordering_s=1.0, codegen="no kernel was generated: " + "<none> of them " * 20
    )
    result = dataclasses.replace(result, entries=(entry, *result.entries[1:]))
    assert (
        repr(result)
        == f"TuningResult(aggregate sum, 2 widths, 4 of 4 plans confirmed, {result.seconds:.1f} s)"
    )
    lines = str(result).splitlines()
    assert max(len(line) for line in (*lines, repr(result))) <= 100
    assert sum(line.startswith("width ") for line in lines) == 4
    assert "<none>" in str(result)
    assert "CpuPlan(" not in str(result)
    for plan in result.entries:
        assert str(plan) in result.details()
    shown = result._repr_html_()
    assert "&lt;none&gt;" in shown
    assert "<none>" not in shown
    assert shown.count("<tr>") == 5
    assert "CpuPlan(" in shown


def test_json_round_trip_and_use(graph):
    result = onehop.tune(graph, [8, 16], budget_s=0.5, keep=False)
    again = TuningResult.from_json(result.to_json())
    assert again == result
    assert [p["width"] for p in json.loads(result.to_json())["curve"]] == [8, 16]
    tuned.forget()
    again.use()
    assert tuned.known(result.entries[0].case) == result.entries[0]
    assert not store.path().exists()


def test_a_result_of_another_machine_is_refused(graph):
    text = onehop.tune(graph, 8, budget_s=0.2).to_json()
    text = text.replace(json.dumps(store.machine()["processor"]), '"an abacus"')
    with pytest.raises(ArgumentError, match="tuned on an abacus, and this is"):
        TuningResult.from_json(text).use()


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("{}", "not a tuning result"), ("3", "not a")]
)
def test_bad_json_is_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        TuningResult.from_json(text)


def test_one_plan_of_several_widths_is_asked_for_by_width(graph):
    result = onehop.tune(graph, [8, 16], budget_s=0.4)
    assert set(result.plans) == {8, 16}
    with pytest.raises(ArgumentError, match="2 widths were tuned; take plans\\[width\\]"):
        _ = result.plan


def test_the_curve_is_drawn(graph, tmp_path, pretend):
    pretend(prefers_short_items)
    with drawn() as figures:
        onehop.tune(graph, [8, 16], budget_s=20).plot(tmp_path / "curve.png")
        onehop.tune(graph, [8, 16], budget_s=20, backward=False).plot(tmp_path / "forward.svg")
    assert [faults(figure) for figure in figures] == [[], []]
    assert (tmp_path / "forward.svg").read_bytes()[:5] == b"<?xml"
    assert (tmp_path / "curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"graph": "cora"}, "graph: expected an onehop.Graph, got str"),
        ({"width": 0}, "width: expected integers of at least 1, got 0"),
        ({"width": torch.tensor(0)}, "width: expected integers of at least 1, got 0"),
        ({"width": True}, "width: expected an integer, got True"),
        ({"width": []}, "width: expected at least one"),
        ({"width": [8, 2.5]}, "got 2.5"),
        ({"op": "gather"}, "op: expected one of aggregate, sddmm, edge_softmax, attention, got 'gather'"),
        ({"reduce": "median"}, "reduce: expected one of sum, mean, max, min, got 'median'"),
        ({"fields": ["tiles"]}, "fields: expected some of prefetch, prefetch_hint, .*, got 'tiles'"),
        ({"budget_s": 0}, "budget_s: expected more than 0 seconds, got 0"),
        ({"budget_s": float("nan")}, "budget_s: expected more than 0 seconds"),
        ({"dtype": torch.int32}, "dtype: the CPU backend computes in float32"),
    ],
)
def test_bad_arguments_are_named(graph, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        onehop.tune(**{"graph": graph, **arguments})


def test_no_tuning_while_a_program_is_compiled(graph, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(ConfigurationError, match="before they are compiled"):
        onehop.tune(graph)


def _tune_in_worker(graph, queue):
    try:
        onehop.tune(graph, 8, budget_s=0.1)
    except ConfigurationError as error:
        queue.put(str(error))


def test_no_tuning_in_forked_workers(graph):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=_tune_in_worker, args=(graph, queue))
    worker.start()
    assert "tune in the main process" in queue.get(timeout=30)
    worker.join()


def test_a_system_that_tells_of_no_caches_is_tuned_too(graph, pretend, monkeypatch):
    monkeypatch.setattr("onehop.processor.caches", dict)
    monkeypatch.setattr("onehop.processor.last_level_cache_bytes", lambda: 0)
    monkeypatch.setattr("onehop.tuner.speeds._UNKNOWN_BYTES", 1 << 22)
    pretend(prefers_short_items)
    speeds.cache_clear()
    try:
        assert onehop.tune(graph, 16, backward=False, budget_s=20).plan.edges_per_item == 512
    finally:
        speeds.cache_clear()
