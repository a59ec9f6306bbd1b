"""Memory that is kept while patched: paused on leaving, given back at will."""

import json
import os
import subprocess
import sys

import pytest

from onehop import native
from onehop.integrations import memory


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
        self.asked, self.can, self.is_used = [], True, True

    def keep_tensor_memory(self):
        self.asked.append("keep")
        return self.can

    def is_from_pool(self, data):
        return self.is_used

    def trim_memory(self):
        self.asked.append("trim")

    def pause_keeping(self):
        self.asked.append("pause")

    def pool_clear(self):
        self.asked.append("clear")


@pytest.fixture
def extension(monkeypatch):
    """The extension, in a process that has seen no patch yet."""
    memory.give_back()
    stand_in = Extension()
    monkeypatch.setattr(native, "extension", stand_in)
    yield stand_in
    memory.give_back()


@pytest.fixture
def kept(extension):
    """Enters patches, and returns the calls that the extension got."""

    def run(times=2):
        for _ in range(times):
            memory.keep()
        asked, extension.asked = extension.asked, []
        return asked

    return run


def test_memory_is_kept_from_the_first_patch_on(kept):
    assert [kept(), kept()] == [["keep", "trim"], []]


@pytest.mark.parametrize("missing", ["can", "is_used"])
def test_where_it_cannot_be_had_it_is_asked_for_once_and_logged(kept, extension, missing, caplog):
    setattr(extension, missing, False)
    with caplog.at_level("INFO", logger="onehop"):
        assert [kept(), kept()] == [["keep", "pause"], []]
    assert [record.message for record in caplog.records] == [
        "Freed memory is not kept: torch's allocator is another one than the C library's."
    ]
    memory.pause()
    memory.give_back()
    assert extension.asked == []
    assert kept() == ["keep", "pause"]


def test_a_pause_keeps_what_was_kept_and_giving_back_releases_it(kept, extension):
    found = [kept()]
    memory.pause()
    memory.pause()
    found += [kept(times=0), kept(), kept()]
    memory.pause()
    memory.give_back()
    memory.give_back()
    found += [kept(times=0), kept()]
    # A patch that is entered anew does not wait for the system again.
    assert found == [["keep", "trim"], ["pause"], ["keep"], [], ["pause", "clear"], ["keep", "trim"]]


FREED_BEFORE = """
import json, torch, torch_geometric, onehop
from onehop import native

with torch.no_grad():
    for _ in range(2):
        torch.ones(7 << 20)  # freed: from now on the C library takes 28 MiB from its heap
    at_first = native.extension.resident_bytes()
    # Each freed tensor lies below one that stays: what is at the end of the heap is returned at once.
    pairs = [(torch.ones(5 << 20), torch.ones(1 << 20)) for _ in range(10)]
    stay = [above for _, above in pairs]
    del pairs
    held = native.extension.resident_bytes()
    onehop.patch(keep_memory={keep})
print(json.dumps([(held - at_first) >> 20, (held - native.extension.resident_bytes()) >> 20]))
"""
KEEPS = "import json; from onehop import native; print(json.dumps(native.extension.keep_tensor_memory()))"


def test_what_the_c_library_held_back_is_returned_when_keeping_begins():
    held, returned = told(FREED_BEFORE.format(keep=False))
    if held < 200 or not told(KEEPS):
        pytest.skip("the C library returns memory by itself, or torch's allocator is another one")
    assert returned < 20
    assert told(FREED_BEFORE.format(keep=True))[1] > 100


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

if how in ("once", "never kept"):
    onehop.patch(keep_memory=how == "once")
run = {{"entering": entering, "accelerated": accelerated}}.get(how, epoch)
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


def trained(how, epochs=5):
    return told(TRAINING.format(how=how, epochs=epochs))


def test_entering_and_leaving_around_an_epoch_costs_no_pages_and_keeps_less_than_the_unpatched_program():
    if not told(KEEPS):
        pytest.skip("torch's allocator is another one than the C library's")
    without, peak, _, _ = trained("never kept")
    assert without > 10_000  # pages an epoch, or there is nothing to gain
    most_of_all = []
    for how in ("once", "entering", "accelerated"):
        faults, most, resident, afterwards = trained(how)
        assert faults < without / 4, how
        assert most < 1.125 * peak + (16 << 20), how
        assert afterwards < resident - (100 << 20), how  # unpatch() gives back what was kept
        most_of_all.append(most)
    assert max(most_of_all) < trained("unpatched", epochs=3)[1] * 1.1


def test_tensors_that_are_too_small_for_the_pool_stay_in_the_heap():
    """The C library does not map and unmap them one by one."""
    program = """
import json
import torch
import onehop

onehop.patch()
data = torch.empty(3_900_000, dtype=torch.uint8).data_ptr()
heap = next(line for line in open("/proc/self/maps") if line.endswith("[heap]\\n"))
begin, end = (int(number, 16) for number in heap.split()[0].split("-"))
print(json.dumps(begin <= data < end))
"""
    assert told(program)
