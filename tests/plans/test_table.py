"""The table of tuned plans of a process."""

import logging
from pathlib import Path

import pytest
import torch

from onehop import Graph
from onehop.plans import CpuPlan, store, tuned
from onehop.plans.table import Table
from onehop.plans.tuned import Tuned

PLAN = CpuPlan(edges_per_item=77, prefetch=3)
SIZES = (30, 30, 200)


@pytest.fixture(autouse=True)
def _own_folder(own_cache):
    """A file of plans for one test."""


def graph(edges=200, nodes=30):
    generator = torch.Generator().manual_seed(0)
    return Graph.from_edge_index(torch.randint(0, nodes, (2, edges), generator=generator), num_nodes=nodes)


def entry(of, plan=PLAN, width=16):
    return Tuned(tuned.case_of(of, "sum", False, width, torch.float32), plan, 1e-3, 1e-3, 2e-3, tried=5)


def case(of, width=16):
    return tuned.case_of(of, "sum", False, width, torch.float32)


def test_it_knows_graphs_that_were_tuned_here_or_before():
    here = Table(store.machine)
    assert not here.knows(SIZES)
    here.install([entry(graph())])
    assert here.knows(SIZES)
    before = Table(store.machine)
    assert before.knows(SIZES)  # not read yet
    assert before.known(case(graph())) == entry(graph())
    assert before.knows(SIZES)  # read
    assert not before.knows((30, 30, 201))


def test_nothing_is_used_of_a_file_of_which_one_plan_is_damaged(caplog):
    small, large = graph(), graph(edges=300)
    Table(store.machine).install([entry(small), entry(large)])
    file = store.path()
    text = file.read_text()
    file.write_text(text.replace('"prefetch": 3', '"prefetch": 300', 1))
    table = Table(store.machine)
    with caplog.at_level(logging.WARNING, "onehop"):
        assert table.known(case(small)) is None
    assert "is damaged" in caplog.text
    assert not file.exists()
    assert not table.knows((30, 30, 300))
    assert table.known(case(large)) is None


def test_a_damaged_file_that_cannot_be_moved_is_not_used(caplog, monkeypatch):
    Table(store.machine).install([entry(graph())])
    file = store.path()
    file.write_text("{")

    def refused(self, target):
        raise PermissionError(f"may not become {target}")

    monkeypatch.setattr(Path, "replace", refused)
    with caplog.at_level(logging.WARNING, "onehop"):
        assert Table(store.machine).known(case(graph())) is None
    assert "cannot be moved (may not become" in caplog.text
    assert file.read_text() == "{"


def test_what_is_tuned_here_goes_before_what_was_read():
    newer = CpuPlan(edges_per_item=99)
    Table(store.machine).install([entry(graph())])
    table = Table(store.machine)
    table.install([entry(graph(), newer)], keep=False)
    assert table.known(case(graph())).plan == newer
    assert Table(store.machine).known(case(graph())).plan == PLAN


def test_a_new_plan_is_used_for_calls_that_were_made_before():
    of, table = graph(), Table(store.machine)
    found = []
    for plan in (None, PLAN, CpuPlan(edges_per_item=99)):
        if plan is not None:
            table.install([entry(of, plan)], keep=False)
        use = table.find(of, "a call", lambda: case(of))
        found.append(use and use[0])
    assert found == [None, PLAN, CpuPlan(edges_per_item=99)]
    assert not store.path().exists()


def test_a_case_is_made_once_a_call():
    of, table, made = graph(), Table(store.machine), []

    def wanted():
        made.append(True)
        return case(of)

    for key in ("a call", "a call", "another"):
        table.find(of, key, wanted)
    assert len(made) == 2
