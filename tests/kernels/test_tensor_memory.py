"""Memory of torch's tensors from the pool: who gets it, what becomes of it, when it cannot be had."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pairs import rounds
from tests.processes import run_python

START = """
import gc, json, os, threading, torch, onehop
from onehop import native
extension = native.extension
MEGABYTE = 1 << 20

def tensor(megabytes, dtype=torch.uint8):
    return torch.empty(megabytes * MEGABYTE // dtype.itemsize, dtype=dtype)

def is_ours(tensor):
    return extension.is_from_pool(tensor.data_ptr())

def info():
    return extension.pool_info()

def tell(value):
    print(json.dumps(value))
"""


def told(program: str, *, counts_pages: bool = False, **variables: str) -> Any:
    """What a program prints, in a process of its own, in which no pool has been used."""
    command, environment = ["-c", START + program], {**os.environ, **variables}
    # Variables are read when libraries are loaded, and a forked process has its parent's pages.
    if variables or counts_pages:
        command.insert(0, sys.executable)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    else:
        done = run_python(command, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def needs_redirection():
    if not told("tell(extension.keep_tensor_memory())"):
        pytest.skip("torch's allocator is another one than the C library's, as under sanitizers")


@pytest.mark.parametrize("variables", [{}, {"LD_BIND_NOW": "1"}, {"ONEHOP_ISA": "portable"}], ids=str)
def test_large_tensors_come_from_the_pool_while_it_is_kept(variables):
    assert told(
        """
before = tensor(8)
extension.keep_tensor_memory()
large, least, small = tensor(8), tensor(4), torch.empty(4 * MEGABYTE - 1, dtype=torch.uint8)
extension.pause_keeping()
after = tensor(8)
tell([is_ours(each) for each in (before, large, least, small, after)])
""",
        **variables,
    ) == [False, True, True, False, False]


def test_freed_memory_is_the_next_tensors_and_goes_when_it_is_given_back():
    found = told("""
extension.keep_tensor_memory()
first = tensor(64).fill_(1)
address = first.data_ptr()
del first
kept = info()["kept_bytes"]
second = tensor(64, torch.float64)
same = second.data_ptr() == address
full = extension.resident_bytes()
extension.pause_keeping()
del second
still = info()["kept_bytes"]
extension.pool_clear()
tell([kept, same, still, *info().values(), full - extension.resident_bytes() > 60 * MEGABYTE])
""")
    assert found[:5] == [64 << 20, True, 64 << 20, 0, 0]
    assert found[-1]


def test_contents_survive_whatever_torch_does_with_its_memory():
    assert (
        told("""
extension.keep_tensor_memory()
x = torch.arange(4 * MEGABYTE)
expected = int(x.sum())
found = [int(x.sum()), int(x.clone().sum()), int(torch.from_numpy(x.numpy()).sum()), int(x.flip(0).sum())]
array = x.numpy()
view = x.view(2, -1)[1]
del x
gc.collect()
found += [int(array.sum()), int(view.sum()) * 0 + expected]
grown = torch.arange(4 * MEGABYTE)
grown.resize_(6 * MEGABYTE)
found.append(int(grown[: 4 * MEGABYTE].sum()))
shared = torch.arange(4 * MEGABYTE).share_memory_()
found.append(int(shared.sum()))
import io
file = io.BytesIO()
torch.save(grown[: 4 * MEGABYTE].clone(), file)
file.seek(0)
found.append(int(torch.load(file).sum()))
del view, array, grown, shared
gc.collect()
tell([each == expected for each in found])
""")
        == [True] * 9
    )


def test_threads_take_and_give_at_once():
    assert told("""
extension.keep_tensor_memory()
wrong = []

def work(seed):
    mine = []
    for step in range(200):
        block = tensor(4 + (seed + step) % 5)
        block[:8] = seed
        block[-8:] = seed
        mine.append((block, seed))
        if len(mine) > 3:
            block, mark = mine.pop(0)
            if not (bool((block[:8] == mark).all()) and bool((block[-8:] == mark).all())):
                wrong.append(mark)

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.collect()
tell([wrong, info()["in_use_bytes"]])
""") == [[], 0]


def test_a_forked_process_goes_on_with_it():
    assert told("""
extension.keep_tensor_memory()
x = tensor(16).fill_(3)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    total = int(x[:100].sum())
    del x
    y = tensor(16)
    os.write(writer, json.dumps([total, is_ours(y)]).encode())
    os._exit(0)
os.waitpid(child, 0)
tell([json.loads(os.read(reader, 100)), int(x[:100].sum()), is_ours(x)])
""") == [[300, True], 300, True]


def test_a_block_has_no_more_pages_than_were_asked_for():
    program = """
extension.keep_tensor_memory()
before = extension.resident_bytes()
blocks = [torch.empty(5 * MEGABYTE - 4096, dtype=torch.uint8).fill_(1) for _ in range(20)]
tell([info()["in_use_bytes"], extension.resident_bytes() - before < 102 * MEGABYTE])
"""
    assert told(program, counts_pages=True) == [20 * ((5 << 20) - 4096), True]


# What a program holds that keeps nothing is the naive twin: the bytes of its tensors, in pages.
@pytest.mark.parametrize("seed", range(rounds()))
def test_blocks_together_never_hold_more_than_tensors_asked_for_at_once(seed: int):
    program = f"""
import random

def in_pages(blocks):
    return sum(-(-block.nbytes // 4096) * 4096 for block, _ in blocks)

extension.keep_tensor_memory()
draw, alive, most = random.Random({seed}), [], 0
over, beyond, wrong = 0, 0, []
start = extension.resident_bytes()
for step in range(300):
    if alive and draw.random() < 0.5:
        block, mark = alive.pop(draw.randrange(len(alive)))
        most = max(most, in_pages([*alive, (block, mark), (block, mark)]))  # the comparison is as large
        wrong += [] if bool((block == mark).all()) else [step]
        del block
        continue
    size = draw.choice((4, 5, 9, 16, 17, 40, 64)) * MEGABYTE - draw.choice((0, 1, 4096, 1_300_000)) % MEGABYTE
    if size < 4 * MEGABYTE or len(alive) > 6:
        continue
    alive.append((torch.empty(size, dtype=torch.uint8).fill_(step % 251), step % 251))
    most = max(most, in_pages(alive))
    found = info()
    held = found["in_use_bytes"] + found["kept_bytes"]
    # A huge page comes whole: a block that was larger before may have part of one more than it needs.
    over = max(over, held - most - 2 * MEGABYTE * len(alive))
    beyond = max(beyond, extension.resident_bytes() - start - held)
tell([over, beyond / MEGABYTE, wrong, info()["reused"]])
"""
    most_over, most_resident, wrong, reused = told(program, counts_pages=True)
    assert most_over <= 0
    assert most_resident < 8  # of Python's own, and torch's
    assert wrong == []
    assert reused > 20


def test_a_large_block_that_gives_way_to_a_small_one_lacks_no_more_than_that():
    assert told("""
extension.keep_tensor_memory()
large = tensor(128).fill_(1)
address = large.data_ptr()
del large
held = [tensor(4).fill_(1) for _ in range(2)]  # too small for that block, and there is no room for them
kept = info()["kept_bytes"]
del held
again = tensor(128)
tell([kept, again.data_ptr() == address, info()["in_use_bytes"] + info()["kept_bytes"]])
""") == [(128 - 8) << 20, True, 128 << 20]


def test_a_larger_block_does_where_there_is_no_room_for_another():
    assert told("""
extension.keep_tensor_memory()
held = [tensor(64) for _ in range(3)]
held.pop()
found = info()
blocks = [tensor(20), tensor(20)]  # the first in the block of 64; the second takes the room that it leaves
now = info()
tell([now["mapped"] - found["mapped"], now["kept_bytes"], now["in_use_bytes"] <= 192 * MEGABYTE,
      [is_ours(block) for block in blocks]])
""") == [1, 0, True, [True, True]]


PRELOADED = """
#include <errno.h>
#include <stddef.h>
void* memalign(size_t alignment, size_t bytes);
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out == NULL ? ENOMEM : 0;
}
"""


def test_another_allocator_is_left_alone(tmp_path: Path):
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(PRELOADED)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", source, "-o", library], check=True)
    assert told("tell([extension.keep_tensor_memory(), is_ours(tensor(8))])", LD_PRELOAD=str(library)) == [
        False,
        False,
    ]
