"""The host's half of a model: counted on the network itself, and turned into time by stated rates."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from onehop import ArgumentError
from onehop.bench.near_bank import Network as Torch
from onehop.machines.pim import upmem_v1a
from onehop.machines.pim.combination import KINDS, HostWork, Network, combination_energy_nj

CONFIG = upmem_v1a()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 3])
def test_products_are_those_of_the_network(kind: str, layers: int) -> None:
    torch_network = Torch(kind, 12, 16, 5, layers).eval()
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        torch_network(torch.ones(50, 12), lambda h: h)
    assert Network(kind, 50, 12, 16, 5, layers).work.flops == counter.get_total_flops()


@pytest.mark.parametrize(("kind", "passes"), [("gcn", 8), ("gin", 9), ("sage", 9)])
def test_passes_by_hand(kind: str, passes: int) -> None:
    matrix = 50 * 16 * 4
    plain = Network(kind, 50, 12, 16, 5, layers=2, quantised=False).work.moved_bytes
    quantised = Network(kind, 50, 12, 16, 5, layers=2).work.moved_bytes
    assert plain == matrix * (2 + 2 * passes)
    assert quantised == matrix * (2 + 2 * (passes + 5))


def test_time_is_products_then_passes() -> None:
    rates = CONFIG.with_(product_gflops=100.0, stream_gbps=10.0)
    assert HostWork(1e9, 0).time_ns(rates) == pytest.approx(1e7)
    assert HostWork(0, 1e9).time_ns(rates) == pytest.approx(1e8)
    assert HostWork(1e9, 1e9).time_ns(rates) == pytest.approx(1.1e8)
    assert Network("gcn", 0, 1, 1, 1).time_ns(rates) == 0


def test_ranks_are_powered_while_the_host_combines() -> None:
    power = CONFIG.power
    assert combination_energy_nj(power, 32, 10.0) == pytest.approx(10 * power.host_w + 320 * power.rank_w)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "gat"}, "model: expected one of gcn, gin, sage, got 'gat'"),
        ({"nodes": -1}, "nodes: expected an integer of at least 0, got -1"),
        ({"layers": 0}, "layers: expected an integer of at least 1, got 0"),
        ({"hidden": 2.5}, "hidden: expected an integer of at least 1, got 2.5"),
        ({"classes": True}, "classes: expected an integer"),
    ],
)
def test_bad_sizes(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Network(**{"kind": "gcn", "nodes": 5, "features": 4, "hidden": 4, "classes": 2, **fields})
