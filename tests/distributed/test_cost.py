"""The model of time and traffic: what it counts, and what it says at its ends."""

import dataclasses

import pytest
import torch

from onehop import ArgumentError
from onehop.distributed import cost
from onehop.distributed.division import ListDivision

EPOCH = cost.Epoch(nodes=1e6, edges=1e7, features=100, hidden=64, columns=200)
HOST = cost.HostRates(gathered_gbps=10, network_gbps=1, memory_bytes=1e10)


def test_columns_of_models() -> None:
    assert cost.columns("gcn", 128, 64, 40) == 208
    assert cost.columns("gatv2", 128, 64, 40) == 208
    assert cost.columns("sage", 128, 64, 40) == 256
    with pytest.raises(ArgumentError, match="gcn, sage or gatv2"):
        cost.columns("gin", 1, 1, 1)


@pytest.mark.parametrize("parts", [2, 5, 16])
def test_rows_cut_by_chance(parts: int) -> None:
    # Every node has the same number of edges, for which the formula is exact in the mean.
    nodes, degree = 3000, 6
    generator = torch.Generator().manual_seed(0)
    source = torch.arange(nodes).repeat(degree)
    target = torch.randint(0, nodes, (nodes * degree,), generator=generator)
    owner = torch.randint(0, parts, (nodes,), generator=generator).int()
    found = ListDivision(torch.stack([source, target]), owner, parts).part(0).cut_rows
    assert found == pytest.approx(cost.cut_rows_by_chance(nodes, nodes * degree, parts), rel=0.03)
    assert cost.cut_rows_by_chance(nodes, nodes * degree, 1) == 0


def test_one_host_computes_and_sends_nothing() -> None:
    alone = cost.estimate(EPOCH, HOST, 1, 0)
    assert alone.epoch_s == alone.compute_s == pytest.approx(1e7 * 200 * 4 / 10e9)
    assert (alone.network_s, alone.sent_bytes, alone.binds) == (0, 0, "compute")


def test_what_binds() -> None:
    rows = cost.cut_rows_by_chance(EPOCH.nodes, EPOCH.edges, 8)
    many = cost.estimate(EPOCH, HOST, 8, rows)
    assert many.binds == "network"
    assert many.epoch_s == many.network_s > many.compute_s
    faster = cost.HostRates(gathered_gbps=10, network_gbps=100, memory_bytes=1e10)
    assert cost.estimate(EPOCH, faster, 8, rows).binds == "compute"
    small = cost.HostRates(gathered_gbps=10, network_gbps=100, memory_bytes=1e6)
    assert cost.estimate(EPOCH, small, 8, rows).binds == "memory"
    assert not cost.estimate(EPOCH, small, 8, rows).fits


@pytest.mark.parametrize("number_bytes", [2, 4])
def test_seconds_and_bytes_worked_out_by_hand(number_bytes: int) -> None:
    epoch = cost.Epoch(nodes=1e6, edges=1e7, features=100, hidden=64, columns=200, number_bytes=number_bytes)
    host = cost.HostRates(gathered_gbps=10, network_gbps=2, memory_bytes=1e10)
    found = cost.estimate(epoch, host, 8, cut_rows=3e6, imbalance=1.2)
    one = number_bytes
    assert found.sent_bytes == 6e8 * one  # 3e6 rows of 200 columns
    assert found.network_s == pytest.approx(6e8 * one * 1.2 / 8 / 2e9)
    assert found.compute_s == pytest.approx(2e9 * one * 1.2 / 8 / 10e9)  # 1e7 edges read 200 columns
    # Three tables as wide as the features, of a host's own rows and those sent to it, and the graph.
    graph = 1e6 * 40 + 3e6 * 16 + 1e7 * 20
    assert found.memory_bytes == pytest.approx((4e6 * 100 * 3 * one + graph) * 1.2 / 8)
    wider = dataclasses.replace(epoch, hidden=300)
    more = cost.estimate(wider, host, 8, cut_rows=3e6, imbalance=1.2).memory_bytes
    assert more == pytest.approx((4e6 * 300 * 3 * one + graph) * 1.2 / 8)


def test_a_part_has_up_to_a_tenth_more_than_the_mean() -> None:
    # The bound of the partitioners, and so what an estimate assumes that is given none.
    assert cost.estimate(EPOCH, HOST, 8, 3e6) == cost.estimate(EPOCH, HOST, 8, 3e6, imbalance=1.1)


def test_memory_that_is_just_enough_is_enough() -> None:
    needed = cost.estimate(EPOCH, HOST, 4, 1e6).memory_bytes
    for memory, fits in ((needed, True), (needed - 1, False)):
        host = cost.HostRates(gathered_gbps=10, network_gbps=1, memory_bytes=memory)
        assert cost.estimate(EPOCH, host, 4, 1e6).fits == fits
