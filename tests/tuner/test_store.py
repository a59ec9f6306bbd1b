"""The file of tuned plans: what is used of it, and what is not. Its faults are tested in `tests/plans`."""

import dataclasses
import json
import logging

import pytest
import torch

from onehop import ArgumentError, Graph
from onehop.backends.cpu import CpuBackend
from onehop.calls import Aggregate, on
from onehop.plans import CpuPlan, store, tuned
from onehop.plans.tuned import Tuned

PLAN = CpuPlan(edges_per_item=77, prefetch=3)


@pytest.fixture
def graph(generator):
    return Graph.from_edge_index(torch.randint(0, 30, (2, 200), generator=generator), num_nodes=30)


def entry(graph, plan=PLAN, width=16, transposed=False, measured_s=1e-3):
    case = tuned.case_of(graph, "sum", transposed, width, torch.float32)
    return Tuned(case, plan, 1e-3, measured_s, 2e-3, tried=5)


def used(graph, width=16, transposed=False):
    """The plan that a call would have, in a process that begins now."""
    tuned.forget()
    return CpuBackend().plan_of_sum(graph, transposed, width, torch.float32)


def default(graph, width=16, transposed=False):
    return CpuBackend().plan_of_sum(graph, transposed, width, torch.float32)


def test_what_is_kept_is_used_by_later_processes(graph):
    untuned = default(graph)
    assert untuned != PLAN
    tuned.install([entry(graph)])
    assert used(graph) == PLAN
    assert used(graph, transposed=True) != PLAN


def test_graphs_of_other_figures_keep_the_default(graph, generator):
    tuned.install([entry(graph)])
    other = Graph.from_edge_index(torch.randint(0, 30, (2, 200), generator=generator), num_nodes=30)
    assert other.statistics.degree_quantiles != graph.statistics.degree_quantiles
    assert used(other) == default(other) != PLAN


def test_the_same_graph_made_again_is_recognised(graph):
    tuned.install([entry(graph)])
    assert used(Graph.from_edge_index(graph.edge_index(), num_nodes=30)) == PLAN


def test_the_nearest_width_wins(graph):
    other = CpuPlan(edges_per_item=99)
    tuned.install([entry(graph, width=16), entry(graph, other, width=18)])
    assert used(graph, 17) == other
    assert used(graph, 16) == PLAN


def test_threads_and_instruction_set_are_part_of_the_case(graph, monkeypatch):
    tuned.install([entry(graph)])
    torch.set_num_threads(torch.get_num_threads() + 1)
    assert used(graph) != PLAN
    torch.set_num_threads(torch.get_num_threads() - 1)
    assert used(graph) == PLAN
    monkeypatch.setattr(tuned.native.extension, "selected_isa", lambda: "another")
    assert used(graph) != PLAN


def test_a_plan_that_was_not_proven_is_not_used(graph):
    tuned.install([entry(graph, measured_s=None)])
    assert used(graph) != PLAN
    assert tuned.known(entry(graph).case).plan == PLAN


def test_a_newer_plan_replaces_the_older(graph):
    newer = CpuPlan(edges_per_item=99)
    tuned.install([entry(graph)])
    tuned.install([entry(graph, newer)])
    assert used(graph) == newer
    assert len(json.loads(store.path().read_text())["plans"]) == 1


def test_stored_plans_can_be_switched_off(graph, monkeypatch):
    tuned.install([entry(graph)])
    monkeypatch.setenv("ONEHOP_TUNED", "0")
    assert used(graph) != PLAN


def test_a_damaged_file_is_set_aside(graph, caplog):
    tuned.install([entry(graph)])
    file = store.path()
    file.write_text(file.read_text().replace('"tried"', '"tired"'))
    with caplog.at_level(logging.WARNING, "onehop"):
        assert used(graph) == default(graph) != PLAN
    assert "is damaged" in caplog.text
    assert not file.exists()
    assert len(list(file.parent.glob("*.damaged-*"))) == 1


def rewrite(**fields):
    file = store.path()
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_another_machines_file_is_neither_used_nor_written(graph, caplog):
    tuned.install([entry(graph)])
    rewrite(machine={**store.machine(), "processor": "a slide rule"})
    with caplog.at_level(logging.WARNING, "onehop"):
        assert used(graph) != PLAN
        assert "tuned on another machine" in caplog.text
        assert not store.save([entry(graph).to_dict()])
    assert "slide rule" in store.path().read_text()


@pytest.mark.parametrize("fields", [{"kernels": store.KERNELS - 1}, {"machine": None}, {"machine": {}}])
def test_a_file_of_unknown_worth_is_not_used_but_replaced(graph, fields):
    tuned.install([entry(graph)])
    rewrite(**fields)
    assert used(graph) != PLAN
    newer = CpuPlan(edges_per_item=99)
    tuned.install([entry(graph, newer)])
    assert used(graph) == newer


@pytest.mark.parametrize("hubs", [0, 256])
def test_a_stored_plan_with_a_removed_field_is_used_at_its_default_and_dropped_otherwise(graph, caplog, hubs):
    earlier, other = entry(graph).to_dict(), entry(graph, width=64).to_dict()
    earlier["plan"]["hub_cache"] = hubs
    store.save([earlier, other])
    with caplog.at_level(logging.WARNING, "onehop"):
        assert (used(graph) == PLAN) == (hubs == 0)
        assert used(graph, width=64) == PLAN
    assert not caplog.text, "the file is not damaged"
    tuned.install([entry(graph)])  # tuned again
    assert used(graph) == PLAN


def test_every_cache_folder_has_plans_of_its_own(graph, tmp_path, monkeypatch):
    tuned.install([entry(graph)])
    monkeypatch.setenv("ONEHOP_CACHE_DIR", str(tmp_path / "other"))
    assert used(graph) != PLAN
    assert not (tmp_path / "other").exists()
    newer = CpuPlan(edges_per_item=99)
    tuned.install([entry(graph, newer)])
    monkeypatch.setenv("ONEHOP_CACHE_DIR", str(tmp_path / "cache"))
    assert used(graph) == PLAN
    monkeypatch.setenv("ONEHOP_CACHE_DIR", str(tmp_path / "other"))
    assert used(graph) == newer


def test_a_folder_that_is_a_file(graph, table, caplog):
    table.write_text("in the way")
    with caplog.at_level(logging.WARNING, "onehop"):
        tuned.install([entry(graph)])
    assert "tuned plans last until this process ends" in caplog.text
    assert default(graph) == PLAN
    assert used(graph) != PLAN


def installed_with_an_order(graph):
    """1 ms saved each call, 3 ms for the order: it pays from the fifth call on."""
    plan = CpuPlan(ordering="degree")
    tuned.install([dataclasses.replace(entry(graph, plan), ordering_s=3e-3)])
    return plan


def test_an_order_is_made_once_calls_have_earned_it(graph):
    plan = installed_with_an_order(graph)
    x = torch.ones(30, 16)
    orders = []
    for _ in range(6):
        orders.append(CpuBackend().plan_of_sum(graph, False, 16, torch.float32).ordering)
        if orders[-1] != "none":
            CpuBackend(plan).run(graph, on(graph, Aggregate, x=x))
    assert orders == ["none"] * 4 + ["degree"] * 2


def test_an_order_that_is_there_is_used_at_once(graph):
    plan = installed_with_an_order(graph)
    CpuBackend(plan).run(graph, on(graph, Aggregate, x=torch.ones(30, 16)))
    assert default(graph).ordering == "degree"


def test_unknown_fields_of_a_case_are_refused():
    with pytest.raises(ArgumentError, match="tuned plan: a field is missing or unknown"):
        Tuned.from_dict({"case": {"graph": "1x1 edges 0"}, "plan": {}})


def test_the_lookup_of_an_untuned_graph_reads_no_statistics(graph, monkeypatch):
    tuned.install([entry(graph)])
    other = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    CpuBackend().plan_of_sum(other, False, 16, torch.float32)
    assert "statistics" not in vars(other)
