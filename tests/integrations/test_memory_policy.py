"""The C library's memory policy: from the third step on, bounded, paused on leaving, given back at will."""

import json
import os
import subprocess
import sys

import pytest
import torch

import onehop
from onehop import native, thresholds
from onehop.integrations import memory, session
from onehop.integrations.settings import Settings


def told(program):
    """What a program prints, in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "ONEHOP_THRESHOLDS"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


class Extension:
    """Stands in for the native extension: notes what it is asked."""

    def __init__(self):
        self.asked, self.peak, self.exceeded = [], 1000, False

    def keep_freed_memory(self, most_bytes):
        self.asked.append(most_bytes)
        self.exceeded = False
        return True

    def pause_keeping(self):
        self.asked.append("pause")

    def give_back_memory(self):
        self.asked.append("give back")

    def bound_kept_memory(self):
        pass

    def kept_memory_exceeded(self):
        exceeded, self.exceeded = self.exceeded, False
        return exceeded

    def peak_resident_bytes(self):
        return self.peak


class Layer:
    pass


LAYER, OTHER = Layer(), Layer()
GRAPH = onehop.Graph.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
SMALL, LARGE = torch.ones(1, 4), torch.ones(1 << 16, 4)  # exactly as large as is asked for


@pytest.fixture
def extension(monkeypatch):
    """The extension, in a process that has seen no layer yet, with the thresholds that users have."""
    memory.give_back()
    stand_in = Extension()
    monkeypatch.setattr(native, "extension", stand_in)
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    monkeypatch.setattr(session, "now", session.Session(settings=Settings(keep_memory=True)))
    yield stand_in
    memory.give_back()


@pytest.fixture
def step(extension):
    """Runs layers, and says what the extension was asked meanwhile."""

    def run(layers=(LAYER, OTHER), x=LARGE):
        for each in layers:
            memory.gained(each, x, GRAPH)
        asked, extension.asked = extension.asked, []
        return asked

    return run


@pytest.mark.parametrize("bounds", [thresholds.ORDINARY, thresholds.NONE], ids=["ordinary", "none"])
def test_memory_is_kept_from_the_third_step_of_a_layer_on(bounds, step, monkeypatch):
    monkeypatch.setattr(thresholds, "now", bounds)
    assert [step() for _ in range(4)] == [[], [], [1500], []]


def test_memory_is_not_kept_for_small_features(step):
    assert [step(x=SMALL) for _ in range(5)] == [[]] * 5


def test_memory_is_not_kept_where_that_is_forbidden(step, monkeypatch):
    monkeypatch.setattr(session, "now", session.Session(settings=Settings(keep_memory=False)))
    assert [step() for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize("peak", [-1, 0])
def test_memory_is_not_kept_where_the_system_does_not_say_what_is_resident(step, extension, peak):
    extension.peak = peak
    assert [step() for _ in range(5)] == [[]] * 5


def test_the_least_that_can_be_resident_is_enough(step, extension):
    extension.peak = 1
    assert [step() for _ in range(3)] == [[], [], [1]]


def test_where_the_system_refuses_it_is_asked_again(step, extension, monkeypatch):
    monkeypatch.setattr(extension, "keep_freed_memory", lambda most: bool(extension.asked.append(most)))
    assert [step() for _ in range(5)] == [[], [], [1500], [1500], [1500]]
    memory.pause()
    assert extension.asked == []


@pytest.mark.parametrize(("bytes_of_x", "most"), [(4, 1050), (200, 1200), (4000, 1500)])
def test_what_is_kept_exceeds_the_peak_by_messages_that_are_not_made_up_to_half_of_it(
    step, bytes_of_x, most, monkeypatch
):
    monkeypatch.setattr(thresholds, "now", thresholds.NONE)
    x = torch.ones(2, bytes_of_x // 4)
    assert [step(x=x) for _ in range(3)][2] == [most]


def test_the_largest_messages_count(step, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.NONE)
    assert [step(x=torch.ones(2, columns)) for columns in (60, 50, 2)] == [[], [], [1240]]


def test_a_layer_that_is_gone_ends_a_step_too(step):
    assert [step((Layer(),)) for _ in range(3)] == [[], [], [1500]]


def test_a_pause_keeps_the_bound_and_giving_back_forgets_it(step):
    found = [step() for _ in range(3)]
    memory.pause()
    memory.pause()
    found += [step(()), step(), step()]
    memory.pause()
    memory.give_back()
    memory.give_back()
    found += [step(()), *(step() for _ in range(3))]
    assert found == [[], [], [1500], ["pause"], [1500], [], ["pause", "give back"], [], [], [1500]]


def test_steps_are_measured_anew_once_the_bound_was_exceeded_and_then_ever_more_rarely(step, extension):
    def exceed(times, peak):
        steps = []
        for _ in range(times):
            extension.exceeded = True
            steps.append(step())
        extension.peak = peak
        return steps + [step() for _ in range(3)]

    for _ in range(3):
        step()
    assert exceed(1, 2000) == [["give back"], [], [3000], []]
    # The peak from before may be one of kept memory: it counts only where a measured step exceeds it.
    assert exceed(4, 2000) == [[], [], [], ["give back"], [], [3000], []]
    assert exceed(15, 2000) == [[]] * 18


TRAINING = """
import json, resource, sys, torch, onehop
from torch_geometric import nn as gnn
from onehop import native
from onehop.datasets import chung_lu

how, epochs = {how!r}, {epochs}
nodes = 30_000
edge_index = chung_lu(nodes, 200_000)
torch.manual_seed(0)
x = torch.randn(nodes, 64)
layers = torch.nn.ModuleList([gnn.GCNConv(64, 300), gnn.GCNConv(300, 300), gnn.SAGEConv(300, 8)])
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)

def epoch():
    out = x
    for layer in layers:
        out = layer(out.relu(), edge_index)
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()

@onehop.accelerate
def accelerated():
    epoch()

def entering():
    with onehop.patch():
        epoch()

def unpatching():
    onehop.patch()
    epoch()
    onehop.unpatch()

if how in ("once", "never kept"):
    onehop.patch(keep_memory=how == "once")
run = {{"entering": entering, "accelerated": accelerated, "unpatching": unpatching}}.get(how, epoch)
faults, resident = [], []
for _ in range(epochs):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    run()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    resident.append(native.extension.resident_bytes())
peak = native.extension.peak_resident_bytes()
onehop.unpatch()
onehop.clear_cache()
print(json.dumps([min(faults[-4:]), peak, resident[-1], native.extension.resident_bytes()]))
"""


def trained(how, epochs=8):
    return told(TRAINING.format(how=how, epochs=epochs))


glibc = pytest.mark.skipif(
    "glibc" not in os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else True,
    reason="only glibc can be asked to keep memory",
)


@glibc
def test_entering_and_leaving_around_an_epoch_costs_no_pages_and_keeps_less_than_the_unpatched_program():
    without, peak, _, _ = trained("never kept")
    assert without > 10_000  # pages an epoch, or there is nothing to gain
    most_of_all = []
    for how in ("once", "entering", "accelerated"):
        faults, most, resident, afterwards = trained(how)
        assert faults < without / 4, how
        assert most < 1.5 * peak + (16 << 20), how
        assert afterwards < resident - (100 << 20), how  # unpatch() gives back what was kept
        most_of_all.append(most)
    assert trained("unpatching", epochs=4)[0] > without / 2
    assert max(most_of_all) < trained("unpatched", epochs=3)[1] * 1.1
