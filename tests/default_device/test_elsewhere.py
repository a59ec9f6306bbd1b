"""Machines, data sets, the tuner, files and processes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import onehop
import onehop.distributed as distributed
from onehop import datasets
from onehop.machines import ndp, pim
from tests.default_device.ways import (
    EDGE_INDEX,
    EDGES,
    HEADS,
    NODES,
    WIDTH,
    assert_same_bits,
    new_graph,
    number,
)


def machine_results() -> list[Tensor]:
    graph, x = new_graph(), number(NODES, WIDTH)
    found = []
    for machine in (pim.Machine(pim.upmem_v1a()), ndp.Machine("grande_16")):
        for reduce in ("sum", "mean"):
            out, _ = machine.aggregate(
                graph,
                x,
                weight=number(EDGES),
                reduce=reduce,
                src_scale=number(NODES),
                dst_scale=number(NODES),
            )
            found += [out, machine.aggregate(graph, x, reduce=reduce)[0]]
    whole = (number(NODES, WIDTH) * 20).to(torch.int8)
    return [*found, pim.Machine(pim.upmem_v1a()).aggregate(graph, whole)[0]]


def twin(name: str) -> list[Tensor]:
    made = datasets.twin(name)
    found = [
        getattr(made, field) for field in ("edge_index", "x", "y", "train_mask", "val_mask", "test_mask")
    ]
    return [each for each in found if each is not None]


CASES: dict[str, Callable[[], list[Tensor]]] = {
    "machines": machine_results,
    "the twin of cora": lambda: twin("cora"),
    "chung_lu": lambda: [datasets.chung_lu(500, 3000)],
    "grid": lambda: [datasets.grid(5, 6)],
}


@pytest.mark.parametrize("name", CASES)
def test_same_bits_whatever_the_default_device(name: str, elsewhere: Callable[[], Any]) -> None:
    assert_same_bits(CASES[name], elsewhere)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_same_bits_in_a_streamed_file(reduce: str, tmp_path: Path, elsewhere: Callable[[], Any]) -> None:
    np.save(tmp_path / "x.npy", number(NODES, WIDTH).numpy())
    np.save(tmp_path / "weight.npy", number(EDGES).numpy())
    stored = new_graph().save(tmp_path / "graph")
    names = iter("ab")

    def run() -> list[Tensor]:
        path = onehop.aggregate(
            stored,
            tmp_path / "x.npy",
            tmp_path / "weight.npy",
            reduce,
            out=tmp_path / f"{next(names)}.npy",
            memory=20_000,
        )
        return [torch.from_numpy(np.load(path))]

    assert_same_bits(run, elsewhere)


@pytest.mark.parametrize("op", ["aggregate", "sddmm", "edge_softmax", "attention"])
def test_tuning_runs_and_its_plan_computes(op: str, own_cache: Path, elsewhere: Callable[[], Any]) -> None:
    graph, x = new_graph(), number(NODES, WIDTH)
    expected = onehop.aggregate(graph, x)
    with elsewhere():
        result = onehop.tune(graph, width=WIDTH, op=op, budget_s=0.3, keep=False)
        found = onehop.aggregate(graph, x)
    assert result.plan is not None
    torch.testing.assert_close(found, expected)


@pytest.fixture
def one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_same_bits_from_a_graph_over_processes(tmp_path: Path, elsewhere: Callable[[], Any]) -> None:
    folders = iter("ab")

    def run() -> list[Tensor]:
        folder = tmp_path / next(folders)
        distributed.save(
            folder, EDGE_INDEX, NODES, parts=1, method="streamed", tensors={"x": number(NODES, 2)}
        )
        found = []
        for part in (
            distributed.DistributedGraph.from_edge_index(EDGE_INDEX, NODES, method="greedy"),
            distributed.DistributedGraph.open(folder),
        ):
            x = number(NODES, WIDTH)[part.owned_nodes].requires_grad_()
            out = distributed.aggregate(part, x, number(EDGES)[part.owned_edges], "mean")
            heads = number(NODES, HEADS, WIDTH)[part.owned_nodes]
            torch.manual_seed(3)
            dropped = distributed.attention(part, heads, heads, heads, dropout=0.5)
            found += [out.detach(), *torch.autograd.grad(out.sum(), x), dropped]
        return found

    assert_same_bits(run, elsewhere)


@pytest.mark.parametrize("method", ["greedy", "streamed"])
def test_same_parts(method: str, elsewhere: Callable[[], Any]) -> None:
    assert_same_bits(lambda: [distributed.partition(new_graph(), 3, method=method)], elsewhere)
