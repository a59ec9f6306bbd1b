"""Kernels in threads, in forked children and in spawned workers, while the patch comes and goes."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import onehop
from onehop import thresholds
from onehop.integrations import rows
from tests.integrations.torch.dispatched import (
    CASES,
    COUNTED,
    each_case,
    operands,
    patched,
    same,
    served,
    whole,
)
from tests.processes import run_python

NODES, LARGE, COLUMNS = 500, 40_000, 8
NAMES = ("x[i]", "index_select", "gather", "index_add", "scatter_add", "scatter_reduce", "backward", "mm")


def index(seed: int = 0) -> Tensor:
    return torch.randint(NODES, (LARGE,), generator=torch.Generator().manual_seed(seed))


def run(name: str, i: Tensor) -> Tensor:
    """Whole numbers of float32, whose sums are exact."""
    x, v = whole(NODES, COLUMNS).float(), whole(LARGE, COLUMNS).float()
    entries = i.unsqueeze(1).expand(-1, COLUMNS)
    if name == "backward":
        x.requires_grad_()
        (x[i] * v).sum().backward()
        assert x.grad is not None
        return x.grad
    runs: dict[str, Callable[[], Tensor]] = {
        "x[i]": lambda: x[i],
        "index_select": lambda: x.index_select(0, i),
        "gather": lambda: x.gather(0, entries),
        "index_add": lambda: x.index_add(0, i, v),
        "scatter_add": lambda: x.scatter_add(0, entries, v),
        "scatter_reduce": lambda: x.scatter_reduce(0, entries, v, "amax"),
        "mm": lambda: x @ x.t(),
    }
    return runs[name]()


@pytest.mark.parametrize("shared", [True, False], ids=["one index", "an index each"])
@pytest.mark.parametrize("name", NAMES)
def test_threads_while_the_patch_comes_and_goes(name: str, shared: bool) -> None:
    indices = [index(0 if shared else seed) for seed in range(4)]
    if shared:
        indices = indices[:1] * 4
    expected = [run(name, each) for each in indices]
    ended = threading.Event()

    def calls(number: int) -> int:
        wrong = 0
        for _ in range(8):
            wrong += not torch.equal(run(name, indices[number]), expected[number])
        return wrong

    def patches() -> int:
        times = 0
        while not ended.is_set() or times < 3:
            with onehop.patch(only="torch"), thresholds.lifted():
                times += 1
            onehop.clear_cache()
        return times

    with ThreadPoolExecutor(5) as pool:
        patching = pool.submit(patches)
        wrong = list(pool.map(calls, range(4)))
        ended.set()
        assert patching.result() >= 3
    assert wrong == [0] * 4


@pytest.mark.parametrize("name", ["x[i]", "index_select", "index_add", "scatter_add"])
def test_threads_are_served(name: str) -> None:
    with served() as names, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: CASES[name](*operands("none", torch.float32)), range(4)))
    assert COUNTED[name] in names


def test_a_backward_pass_in_a_thread_is_served() -> None:
    x, v = operands("both", torch.float32)
    out = CASES["index_select"](x, v)
    with served() as names, ThreadPoolExecutor(1) as pool:
        pool.submit(out.sum().backward).result()
    assert "index_add" in names


@pytest.mark.parametrize("under", ["forward", "backward"])
@each_case
def test_the_patch_comes_or_goes_between_forward_and_backward(name: str, under: str) -> None:
    def gradients(forward: bool, backward: bool) -> tuple[Tensor | None, Tensor | None]:
        x, v = operands()
        with patched() if forward else contextlib.nullcontext():
            out = CASES[name](x, v)
        with patched() if backward else contextlib.nullcontext():
            out.square().sum().backward()
        return x.grad, v.grad

    same(gradients(under == "forward", under == "backward"), gradients(False, False))


def test_nested_handles() -> None:
    x, i = whole(NODES, COLUMNS).float(), index()

    def is_served() -> bool:
        with rows.counted(everywhere=True) as counts:
            x.index_select(0, i)
        return bool(counts["index_select", True])

    with thresholds.lifted():
        assert not is_served()
        with onehop.patch(only="torch"):
            assert is_served()
            with onehop.patch(indexing=False):
                assert not is_served()
                with onehop.patch(indexing=True):
                    assert is_served()
                assert not is_served()
            assert is_served()
        assert not is_served()
    onehop.clear_cache()


SHARED = """
import os
import sys

import torch

import onehop
from onehop import thresholds
from onehop.integrations import rows

# A child of a process in which torch's loops ran on several threads waits for those for ever, patched or not.
torch.set_num_threads(1)
thresholds.now = thresholds.NONE
i = torch.randint(500, (40_000,), generator=torch.Generator().manual_seed(0))
wide = i.unsqueeze(1).expand(-1, 8)
x = torch.arange(4000.).view(500, 8) % 7
v = torch.arange(320_000.).view(40_000, 8) % 5


def results():
    leaf = x.clone().requires_grad_()
    leaf[i].mul(v).sum().backward()
    return [x[i], x.index_select(0, i), x.gather(0, wide), x.index_add(0, i, v), x.scatter_add(0, wide, v),
            x.scatter_reduce(0, wide, v, "amax"), leaf.grad, x @ x.t()]


def right(expected):
    return all(map(torch.equal, results(), expected))


def is_served():
    with rows.counted(everywhere=True) as counts:
        results()
    return any(ours for _, ours in counts)
"""
FORKED = """
expected = results()
onehop.patch(only="torch")
assert right(expected) and is_served()
for _ in range(2):
    child = os.fork()
    if child == 0:
        code = 0 if right(expected) and is_served() else 3
        onehop.unpatch()
        os._exit(code if right(expected) and not is_served() else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert right(expected) and is_served()
"""
FORKED_BEFORE = """
expected = results()
child = os.fork()
if child == 0:
    onehop.patch(only="torch")
    os._exit(0 if right(expected) and is_served() else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert right(expected) and not is_served()
"""


def ran(program: str, *arguments: str | Path) -> None:
    done = run_python(["-c", program, *arguments], timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", [FORKED, FORKED_BEFORE], ids=["under the patch", "before it"])
def test_forked_children(program: str) -> None:
    ran(SHARED + program)


SPAWNED = (
    SHARED
    + """
import functools
import multiprocessing


def work(functions, expected):
    # Functions of torch are pickled by where they are found, and this process finds torch's own.
    linear, gather, add = functions
    found = [linear(x, x), gather(x, 0, wide), add(x, 0, i, v)]
    same = all(map(torch.equal, found, expected))
    with onehop.patch(only="torch"):
        return same and right(results()) and is_served()


if __name__ == "__main__":
    functions = [torch.nn.functional.linear, torch.gather, functools.partial(torch.index_add)]
    expected = [functions[0](x, x), functions[1](x, 0, wide), functions[2](x, 0, i, v)]
    onehop.patch(only="torch")
    functions = [torch.nn.functional.linear, torch.gather, functools.partial(torch.index_add)]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(work, (functions, expected))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(work, (functions, expected))
"""
)


def test_workers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SPAWNED)
    done = run_python([program], timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_loaders_whose_workers_gather() -> None:
    i, x = index(), whole(NODES, COLUMNS).float()

    def collate(batch: Any) -> Tensor:
        return x.index_select(0, i[: 10_000 * (batch[0] + 1)])

    expected = [collate([number]) for number in range(2)]
    with patched():
        loader = DataLoader([0, 1], batch_size=1, num_workers=1, collate_fn=collate)  # type: ignore[arg-type]
        found = list(loader)
    assert all(map(torch.equal, found, expected))
