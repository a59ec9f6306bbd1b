"""Handles of the patch: in any order, in any thread, again and again; and what a failure leaves."""

import gc
import sys
import weakref

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.utils as utils
from torch_geometric import nn as gnn

import onehop
from onehop import ArgumentError, native, thresholds
from onehop.backends import registry
from onehop.integrations import in_force, memory, session
from onehop.integrations.rows import counted
from onehop.machines import pim
from tests.attack.actors import Actor
from tests.processes import run_python


@pytest.fixture(autouse=True)
def _unpatched_afterwards():
    onehop.unpatch()
    yield
    onehop.unpatch()
    onehop.clear_cache()


@pytest.fixture
def actors():
    made = [Actor(), Actor()]
    yield made
    for each in made:
        each.end()


EDGES, X = torch.randint(9, (2, 30)), torch.randn(9, 4)


# Order


def test_handles_may_be_left_in_the_order_in_which_they_were_made():
    first, second = onehop.patch(only="GCNConv"), onehop.patch(only="torch")
    first.__exit__(None, None, None)
    assert session.now.layers == frozenset()
    assert onehop.patched()
    second.__exit__(None, None, None)
    assert onehop.patched() == ()
    second.__exit__(None, None, None)
    assert session.now == session.Session()


def test_a_handle_can_be_entered_again_and_in_itself():
    handle = onehop.patch(only="GCNConv")
    for _ in range(2):
        with handle, handle:
            assert session.now.layers == {"GCNConv"}
        assert onehop.patched() == ()
    with handle:
        onehop.unpatch()
        assert onehop.patched() == ()
        with handle:
            assert onehop.patched()
        assert onehop.patched() == ()
    assert onehop.patched() == ()


def test_the_handle_that_is_entered_is_in_force():
    first, second = onehop.patch(only="GCNConv"), onehop.patch(only="SAGEConv")
    with first:
        assert session.now.layers == {"GCNConv"}
    assert session.now.layers == {"SAGEConv"}
    second.__exit__(None, None, None)
    assert onehop.patched() == ()


def test_a_patch_without_a_block_stays_until_it_is_taken_back():
    with onehop.patch(only="GCNConv"):
        onehop.patch(only="SAGEConv")
    assert session.now.layers == {"SAGEConv"}
    with onehop.patch() as handle:
        handle.remove()
        assert onehop.patched() == ()
    assert onehop.patched() == ()


def test_patching_in_a_loop_keeps_one_entry():
    with onehop.patch() as outer:
        for _ in range(20):
            onehop.patch()
        assert len(in_force._entries) <= 2
    assert outer.active


def test_pauses_overlap_with_handles():
    handle = onehop.patch(only="GCNConv")
    one, other = handle.paused(), handle.paused()
    one.__enter__()
    inner = onehop.patch(only="SAGEConv")
    other.__enter__()
    assert onehop.patched() == ()
    one.__exit__(None, None, None)
    assert onehop.patched() == ()
    other.__exit__(None, None, None)
    assert session.now.layers == {"SAGEConv"}
    inner.__exit__(None, None, None)
    assert session.now.layers == {"GCNConv"}


def test_what_ends_in_a_pause_stays_ended():
    with onehop.patch() as handle, handle.paused():
        onehop.patch()
        onehop.unpatch()
    assert onehop.patched() == ()


def test_threads_leave_each_other_alone(actors):
    one, other = actors
    seen = []
    one.enter(lambda stay: onehop.accelerate(stay)())
    other.enter(lambda stay: onehop.accelerate(lambda: (stay(), seen.append(len(onehop.patched()))))())
    one.leave()
    assert onehop.patched()
    other.leave()
    assert seen[0] > 0
    assert onehop.patched() == ()


def test_an_explanation_outlasts_the_patch_of_another_thread(actors):
    one, other = actors

    class Model(torch.nn.Module):
        def __init__(self, stay):
            super().__init__()
            self.layer, self.stay = gnn.SAGEConv(4, 4), lambda: stay()  # not copied

        def forward(self, x):
            self.stay()
            return self.layer(x, EDGES)

    handle = one.do(onehop.patch)
    other.enter(lambda stay: onehop.explain(Model(stay), X))
    one.do(lambda: gnn.GCNConv(4, 4)(X, EDGES))
    one.do(lambda: handle.__exit__(None, None, None))
    told = other.leave()
    assert [(row.kind, row.calls) for row in told.layers] == [("SAGEConv", 1)]
    assert onehop.patched() == ()


# Names that outlast the patch


def test_functions_that_were_imported_while_patched_are_theirs_afterwards():
    index, pairs = torch.tensor([2, 0, 1]), torch.tensor([[2, 0, 1]]).T.expand(3, 4)
    with thresholds.lifted():
        x, layer = X[:3], gnn.GATConv(4, 2, add_self_loops=False)
        handle = onehop.patch()
        held = {
            "linear": (F.linear, (x, torch.eye(4))),
            "index_select": (torch.index_select, (x, 0, index)),
            "bound": (x.index_select, (0, index)),
            "gather": (torch.gather, (x, 0, pairs)),
            "dropout": (torch._VF.dropout, (x, 0.5, False)),
            "softmax": (utils.softmax, (x, index)),
            "coalesce": (utils.coalesce, (EDGES,)),
            "GATConv.forward": (gnn.GATConv.forward, (layer, (x, x), EDGES % 3)),
            "propagate": (gnn.GATConv.propagate, (layer, EDGES % 3)),
        }
        handle.remove()
        assert F.linear is torch._C._nn.linear
        values = {}
        with counted() as counts:
            for name, (function, operands) in held.items():
                if name != "propagate":
                    values[name] = function(*operands)
        assert not counts
        torch.testing.assert_close(values["GATConv.forward"], layer((x, x), EDGES % 3))
        torch.testing.assert_close(values["index_select"], x[index])
        # The same name is ours again in the next patch, and not in a pause.
        with onehop.patch() as handle, counted() as counts:
            held["softmax"][0](x, index)
            held["gather"][0](x, 0, pairs)
            assert {name for name, _ in counts} >= {"softmax", "gather"}
            calls = counts.total()
            with handle.paused():
                held["softmax"][0](x, index)
                held["gather"][0](x, 0, pairs)
            assert counts.total() == calls


def test_a_module_that_imported_ours_gets_theirs_back():
    module = sys.modules[__name__]
    with onehop.patch():
        module.imported = utils.softmax
    with onehop.patch():
        assert f"{__name__}.imported" in onehop.patched()
    assert module.imported is utils.softmax
    del module.imported


# Refusals change nothing


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "nonsense"},
        {"backend": "pim"},
        {"tune": "always"},
        {"only": "NoConv"},
        {"machine": "pim"},
        {"machine": pim.Machine},
        {"machine": pim.Machine(), "backend": "cpu"},
        {"machine": pim.Machine(), "reuse": True},
        {"machine": pim.Machine(), "only": "torch"},
    ],
)
@pytest.mark.parametrize("outer", [False, True])
def test_a_refused_patch_changes_nothing(wrong, outer, monkeypatch):
    given_back = []
    if outer:
        onehop.patch(keep_memory=True)
    monkeypatch.setattr(native.extension, "pool_clear", lambda: given_back.append(True))
    before = session.now, onehop.patched(), memory._state, list(registry._PATCHED), list(in_force._entries)
    with pytest.raises(ArgumentError):
        onehop.patch(keep_memory=False, **wrong)
    after = session.now, onehop.patched(), memory._state, list(registry._PATCHED), list(in_force._entries)
    assert after == before
    assert given_back == []
    monkeypatch.undo()


def test_what_fails_while_rows_are_installed_brings_the_outer_patch_back(monkeypatch):
    with onehop.patch(only="torch", products=False):
        before, rows = session.now, onehop.patched()
        monkeypatch.setattr(
            "onehop.integrations.pyg.hook.wrap_existing", lambda: (_ for _ in ()).throw(KeyError("no"))
        )
        with pytest.raises(KeyError):
            onehop.patch(products=True)
        assert session.now is before
        assert onehop.patched() == rows
        assert F.linear is torch._C._nn.linear


# Machines


def test_a_machine_goes_with_its_handle():
    gc.collect()
    before = len(registry._PATCHED)
    machine, layer = pim.Machine(), gnn.SAGEConv(4, 4)
    handle, gone = onehop.patch(machine=machine), weakref.ref(machine)
    with handle:
        layer(X, EDGES)
    with handle:
        layer(X, EDGES)
    assert "SAGEConv 1" in str(handle.report)
    assert "SAGEConv 2" not in str(handle.report)
    del machine, handle
    gc.collect()
    assert gone() is None
    assert len(registry._PATCHED) == before


def test_a_machine_stays_for_an_inner_patch_and_for_a_backward_pass():
    machine, layer = pim.Machine(), gnn.SAGEConv(4, 4)
    x = X.clone().requires_grad_()
    outer, gone = onehop.patch(machine=machine), weakref.ref(machine)
    ledger = outer.report
    inner = onehop.patch()
    outer.__exit__(None, None, None)
    del machine, outer
    gc.collect()
    out = layer(x, EDGES)
    inner.__exit__(None, None, None)
    del inner
    gc.collect()
    runs = str(ledger)
    out.sum().backward()
    assert str(ledger) != runs
    assert x.grad is not None
    del out
    gc.collect()
    assert gone() is None


def test_names_of_machines_are_not_used_again():
    names = []
    for _ in range(2):
        with onehop.patch(machine=pim.Machine()):
            names.append(session.now.machine)
    assert len(set(names)) == 2


# Memory


def test_memory_follows_the_handle_in_force():
    keeping, leaving = onehop.patch(keep_memory=True), onehop.patch(keep_memory=False)
    if memory._state is memory._State.IMPOSSIBLE:
        pytest.skip("torch's allocator is another one than the C library's")
    states = [memory._state]
    leaving.__exit__(None, None, None)
    states.append(memory._state)
    with keeping.paused():
        states.append(memory._state)
    states.append(memory._state)
    keeping.__exit__(None, None, None)
    states.append(memory._state)
    state = memory._State
    assert states == [state.ORDINARY, state.KEEPING, state.PAUSED, state.KEEPING, state.PAUSED]


def test_a_child_does_not_wait_for_a_thread_of_its_parent():
    program = """
import os, threading, warnings, onehop
from onehop.integrations import session
held, done = threading.Event(), threading.Event()
def hold():
    with session.lock:
        held.set(); done.wait()
thread = threading.Thread(target=hold)
thread.start(); held.wait()
warnings.simplefilter("ignore")  # newer releases of Python warn of forks among threads
child = os.fork()
if not child:
    onehop.unpatch()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
"""
    done = run_python(["-c", program], timeout=60)
    assert done.stdout.strip() == "7", done.stderr
