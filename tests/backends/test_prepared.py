"""Prepared calls: made once for a graph and a key, and again when what they were made of changes."""

import gc
import threading
import weakref

import pytest
import torch

import onehop
from onehop import Graph, thresholds
from onehop.backends.cpu import CpuBackend
from onehop.calls import Aggregate, on
from onehop.plans import CpuPlan, tuned
from onehop.plans.entry import Tuned


@pytest.fixture
def graph():
    edges = torch.randint(0, 50, (2, 400), generator=torch.Generator().manual_seed(0))
    return Graph.from_edge_index(edges, 50)


@pytest.fixture
def x():
    return torch.randn(50, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _no_plans(monkeypatch, tmp_path):
    monkeypatch.setenv("ONEHOP_CACHE_DIR", str(tmp_path))
    tuned.forget()
    yield
    tuned.forget()


def kept(graph):
    """The prepared sum of a graph."""
    (found,) = (each.prepared for key, each in graph.prepared.items() if key[0] is Aggregate)
    return found


def test_a_call_is_prepared_once(graph, x):
    first = onehop.aggregate(graph, x)
    before = kept(graph)
    assert torch.equal(onehop.aggregate(graph, x.clone()), first)
    assert kept(graph) is before


def test_another_width_or_direction_has_its_own(graph, x):
    onehop.aggregate(graph, x)
    onehop.aggregate(graph, x[:, :3])
    onehop.aggregate(graph, x, reduce="mean")
    x.requires_grad_()
    onehop.aggregate(graph, x).sum().backward()
    assert len(graph.prepared) == 4


def test_another_number_of_threads_prepares_again(graph, x):
    expected, before = onehop.aggregate(graph, x), torch.get_num_threads()
    one = kept(graph)
    torch.set_num_threads(before + 1)
    assert torch.equal(onehop.aggregate(graph, x), expected)
    assert kept(graph) is not one


def test_other_thresholds_prepare_again(graph, x):
    expected = onehop.aggregate(graph, x)
    one = kept(graph)
    with thresholds.lifted():
        torch.testing.assert_close(onehop.aggregate(graph, x), expected)
        assert kept(graph) is not one


def test_a_tuned_plan_is_used_by_the_next_call_and_forgotten_with_the_table(graph, x):
    onehop.aggregate(graph, x)
    default = kept(graph).template.edges_per_item
    case = tuned.case_of(graph, "sum", False, 16, torch.float32)
    tuned.install([Tuned(case, CpuPlan(edges_per_item=77), 1e-3, 1e-3, 2e-3)], keep=False)
    onehop.aggregate(graph, x)
    assert kept(graph).template.edges_per_item == 77
    tuned.forget()
    onehop.aggregate(graph, x)
    assert kept(graph).template.edges_per_item == default != 77


def test_an_order_that_is_still_to_be_earned_is_asked_for_anew(graph, x):
    case = tuned.case_of(graph, "sum", False, 16, torch.float32)
    plan = CpuPlan(ordering="degree")
    tuned.install([Tuned(case, plan, 1e-3, 1e-3, 2e-3, ordering_s=3e-3)], keep=False)
    expected = onehop.aggregate(graph, x)
    assert not graph.prepared
    for _ in range(6):
        assert torch.equal(onehop.aggregate(graph, x), expected)
    assert kept(graph).ordering == "degree"


def test_a_given_plan_keeps_its_calls_to_itself(graph, x):
    backend = CpuBackend(CpuPlan(edges_per_item=64))
    call = on(graph, Aggregate, x=x)
    first = backend.run(graph, call)
    assert not graph.prepared
    (calls,) = backend._own.values()
    (one,) = calls.values()
    assert torch.equal(backend.run(graph, call), first)
    assert next(iter(calls.values())) is one


def test_prepared_calls_die_with_their_graph(graph, x):
    backend = CpuBackend(CpuPlan(edges_per_item=64))
    mine = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    onehop.aggregate(mine, x[:2])
    backend.run(mine, on(mine, Aggregate, x=x[:2]))
    dead = weakref.ref(mine)
    del mine
    gc.collect()
    assert dead() is None
    assert not backend._own


def test_threads_share_a_prepared_call(graph, x):
    """Each has addresses of its own, whatever the others do meanwhile."""
    inputs = [x * scale for scale in range(1, 9)]
    expected = [onehop.aggregate(graph, each) for each in inputs]
    wrong = []

    def work(number):
        found = [onehop.aggregate(graph, inputs[number]) for _ in range(200)]
        wrong.extend(number for each in found if not torch.equal(each, expected[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
