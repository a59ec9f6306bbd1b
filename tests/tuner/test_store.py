"""The file of tuned plans, and everything that can happen to a file."""

import errno
import json
import logging
import multiprocessing
import os
from pathlib import Path

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


@pytest.mark.parametrize(("width", "near"), [(16, True), (20, True), (13, True), (21, False), (8, False)])
def test_near_widths_share_a_plan(graph, width, near):
    tuned.install([entry(graph)])
    assert (used(graph, width) == PLAN) == near


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


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[1, 2]",
        lambda text: "\x00\xff" * 50,
        lambda text: text.replace('"prefetch": 3', '"prefetch": 300'),
        lambda text: text.replace('"operation": "sum"', '"operation": "product"'),
        lambda text: text.replace('"width": 16', '"width": "wide"'),
        lambda text: text.replace(" edges ", " borders "),
        lambda text: text.replace('"tried"', '"tired"'),
    ],
    ids=["truncated", "empty", "list", "binary", "value", "operation", "type", "key", "field"],
)
def test_a_damaged_file_is_set_aside(graph, caplog, damage):
    tuned.install([entry(graph)])
    file = store.path()
    file.write_text(damage(file.read_text()))
    with caplog.at_level(logging.WARNING, "onehop"):
        assert used(graph) == default(graph) != PLAN
    assert "is damaged" in caplog.text
    assert not file.exists()
    assert len(list(file.parent.glob("*.damaged-*"))) == 1
    tuned.install([entry(graph)])  # and the next one is as good as new
    assert used(graph) == PLAN


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(graph, table, caplog):
    table.mkdir()
    table.chmod(0o500)
    try:
        with caplog.at_level(logging.WARNING, "onehop"):
            tuned.install([entry(graph)])
        assert "cannot be written" in caplog.text
        assert default(graph) == PLAN  # in this process it is used
    finally:
        table.chmod(0o700)


def test_a_read_only_folder_is_read(graph, caplog, monkeypatch):
    tuned.install([entry(graph)])

    def refused(*args, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    opened = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, mode="r", *rest: (refused if "w" in mode else opened)(self, mode, *rest)
    )
    for name in ("mkdir", "replace"):
        monkeypatch.setattr(Path, name, refused)
    monkeypatch.setattr("onehop.plans.store.tempfile.mkstemp", refused)
    tuned.forget()
    assert used(graph) == PLAN
    newer = CpuPlan(edges_per_item=99)
    with caplog.at_level(logging.WARNING, "onehop"):
        tuned.install([entry(graph, newer)])
    assert "Read-only file system" in caplog.text
    assert default(graph) == newer  # in this process it is used


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


def _write(number):
    case = tuned.PlanCase(f"{number}x{number} edges 9 degrees 1", "sum", False, number, "float32", 1, "none")
    for _ in range(5):
        assert store.save([Tuned(case, PLAN, 1.0, 1.0, 1.0).to_dict()])


def test_several_processes_write_at_once():
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(number,)) for number in range(1, 9)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    assert sorted(e["case"]["width"] for e in store.load()) == list(range(1, 9))
    assert list(store.path().parent.glob("*.part")) == []


def test_a_result_goes_to_json_and_back(graph):
    assert Tuned.from_dict(json.loads(json.dumps(entry(graph).to_dict()))) == entry(graph)


def test_an_order_is_made_once_calls_have_earned_it(graph):
    plan = CpuPlan(ordering="degree")
    case = tuned.case_of(graph, "sum", False, 16, torch.float32)
    # 1 ms saved each call, 3 ms for the order: from the fifth call on.
    tuned.install([Tuned(case, plan, 1e-3, 1e-3, 2e-3, ordering_s=3e-3)])
    x = torch.ones(30, 16)
    orders = []
    for _ in range(6):
        orders.append(CpuBackend().plan_of_sum(graph, False, 16, torch.float32).ordering)
        if orders[-1] != "none":
            CpuBackend(plan).run(graph, on(graph, Aggregate, x=x))
    assert orders == ["none"] * 4 + ["degree"] * 2


def test_an_order_that_is_there_is_used_at_once(graph):
    plan = CpuPlan(ordering="degree")
    case = tuned.case_of(graph, "sum", False, 16, torch.float32)
    tuned.install([Tuned(case, plan, 1e-3, 1e-3, 2e-3, ordering_s=3e-3)])
    CpuBackend(plan).run(graph, on(graph, Aggregate, x=torch.ones(30, 16)))
    assert default(graph).ordering == "degree"


def test_unknown_fields_of_a_case_are_refused():
    with pytest.raises(ArgumentError, match="tuned plan: a field is missing or unknown"):
        Tuned.from_dict({"case": {"graph": "1x1 edges 0"}, "plan": {}})


def test_the_lookup_of_an_untuned_graph_reads_no_statistics(graph, monkeypatch):
    tuned.install([entry(graph)])
    other = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    CpuBackend().plan_of_sum(other, False, 16, torch.float32)
    assert other._statistics is None
