"""Links: limits by core, by rank and by host, and their error against held-out measurements."""

import math
from itertools import pairwise, product

import numpy as np
import pytest

from onehop import ArgumentError
from onehop.machines.pim import upmem_v1a
from onehop.machines.pim.calibration import DIRECTIONS, Errors, fitted, held_out, modelled_ms, pairs
from onehop.machines.pim.links import broadcast_gbps, broadcast_ns, pull_limit_gbps, push_gbps, retrieve_ns
from onehop.machines.pim.measured import FITTED, TRANSFERS, Transfer

CONFIG = upmem_v1a()
_RATES = {
    DIRECTIONS[0]: ("core_push_gbps", "rank_push_gbps"),
    DIRECTIONS[1]: ("core_pull_gbps", "rank_pull_gbps"),
}


def ranks(number: int, cores: int = 62) -> object:
    return CONFIG.with_(cores=number * cores, ranks=number)


@pytest.mark.parametrize(
    ("machine", "push", "pull", "broadcast"),
    [
        # One core; a full rank; the paper's machine.
        (ranks(1, 1), 0.683, 0.171, 0.683),
        (ranks(1), 3.98, 1.58, 16.88),
        (ranks(1, 128), 3.98, 1.58, 16.88),
        (CONFIG, 8.9, 32 * 1.58, 43.73),
    ],
)
def test_rates_of_cores_ranks_and_the_machine(
    machine: object, push: float, pull: float, broadcast: float
) -> None:
    assert push_gbps(machine) == pytest.approx(push)
    assert pull_limit_gbps(machine) == pytest.approx(pull)
    assert broadcast_gbps(machine) == pytest.approx(broadcast)


def test_a_rank_grows_as_a_power_of_its_cores() -> None:
    rates = [push_gbps(ranks(1, cores)) for cores in (1, 2, 4, 8, 16, 32)]
    steps = [after / before for before, after in pairwise(rates)]
    assert steps == pytest.approx([2 ** (math.log(3.98 / 0.683) / math.log(62))] * 5)


def test_broadcasts_grow_with_the_ranks_so_that_more_cores_never_slow_them_down() -> None:
    # The same bytes a core: with ds dense parts on ds ranks, all ranks together get the same at any number.
    times = [broadcast_ns(ranks(number), 1e10) for number in (1, 2, 4, 8, 16, 32)]
    assert times == sorted(times, reverse=True)
    assert times[0] / times[-1] == pytest.approx(43.73 / 16.88, rel=1e-3)
    assert broadcast_gbps(ranks(64)) == pytest.approx(43.73)


def test_few_cores_pull_slowly_whatever_the_host_could_take() -> None:
    latency = CONFIG.links.call_us * 1e3
    one = retrieve_ns(ranks(1, 1), np.array([1e6]), reuse_buffers=False) - latency
    assert one == pytest.approx(1e6 / 0.171)
    kept = retrieve_ns(ranks(1, 1), np.array([1e6]), reuse_buffers=True) - latency
    assert kept == pytest.approx(1e6 / 0.171 - 1e6 / 4096 * 250)


def test_the_held_out_set_is_of_one_rank_and_large_blocks() -> None:
    assert len(TRANSFERS) > 50
    for each in TRANSFERS:
        assert each.cores in (1, 4, 16, 64)
        assert each.in_bytes >= 1 << 15
        assert each.in_ms > 0
        assert (each.out_bytes >= 1 << 15 and each.out_ms > 0) or (
            each.benchmark == "RED" and not each.out_bytes
        )


def test_a_transfer_on_the_model() -> None:
    transfer = Transfer("VA", 4, 1_000_000, 1.0, 500_000, 1.0)
    latency = CONFIG.links.call_us / 1e3
    inwards = 4.0 / push_gbps(ranks(1, 4)) + latency
    assert modelled_ms(CONFIG, transfer, DIRECTIONS[0]) == pytest.approx(inwards)
    assert modelled_ms(CONFIG, transfer, DIRECTIONS[1]) == pytest.approx(
        2.0 / pull_limit_gbps(ranks(1, 4)) + latency
    )


def test_errors_are_what_they_are_called() -> None:
    found = Errors.of([(1.0, 2.0), (2.0, 3.0), (4.0, 2.0)])
    assert found.points == 3
    assert found.mean_error == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert found.bias == pytest.approx((1 + 0.5 - 0.5) / 3)
    assert found.worst == pytest.approx(1.0)
    x, y = np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0, 2.0])
    assert found.r2 == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    with pytest.raises(ArgumentError, match="at least 2"):
        Errors.of([(1.0, 1.0)])


def test_the_links_fit_half_of_the_transfers() -> None:
    links = CONFIG.links
    for direction, constants in (
        (DIRECTIONS[0], (links.core_push_gbps, links.rank_push_gbps)),
        (DIRECTIONS[1], (links.core_pull_gbps, links.rank_pull_gbps)),
    ):
        found = fitted(CONFIG, direction)
        assert constants == pytest.approx(found, rel=2e-3)

        def squares(one: float, rank: float, way: str = direction) -> float:
            machine = CONFIG.with_(
                **dict(zip(_RATES[way], (one, rank), strict=True)), broadcast_gbps=((1, 50.0), (32, 60.0))
            )
            own = [
                each
                for each in TRANSFERS
                if each.benchmark in FITTED and (way == DIRECTIONS[0] or each.out_ms)
            ]
            times = [each.in_ms if way == DIRECTIONS[0] else each.out_ms for each in own]
            return sum(
                math.log(modelled_ms(machine, each, way) / ms) ** 2
                for each, ms in zip(own, times, strict=True)
            )

        for one, rank in product((0.97, 1.0, 1.03), repeat=2):
            assert squares(found[0] * one, found[1] * rank) >= squares(*found)


def test_held_out_errors_are_stated_by_direction_and_cores() -> None:
    found = held_out(CONFIG)
    assert set(found) == {
        f"{direction}{cores}"
        for direction in DIRECTIONS
        for cores in ("", ", 1 core", ", 4 cores", ", 16 cores", ", 64 cores")
    }
    for direction in DIRECTIONS:
        assert found[direction].points == len(pairs(CONFIG, direction))
        # Half of what the rates had that were measured elsewhere, one core's and a full rank's.
        others = {
            "core_push_gbps": 0.33,
            "rank_push_gbps": 6.68,
            "core_pull_gbps": 0.12,
            "rank_pull_gbps": 4.74,
        }
        assert found[direction].mean_error < 0.6 * held_out(CONFIG.with_(**others))[direction].mean_error
    assert not {each.benchmark for each in TRANSFERS} - {*FITTED, "SCAN-SSA", "SCAN-RSS"}
