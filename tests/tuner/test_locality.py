"""Miss shares against a cache that is simulated read by read."""

from collections import OrderedDict

import pytest
import torch

from onehop.tuner import cost_model
from onehop.tuner.cost_model import Locality


def simulated(reads, cache_rows):
    """The share that misses a cache of so many rows, least recently used first out."""
    cache, misses = OrderedDict(), 0
    for row in reads.tolist():
        if row in cache:
            cache.move_to_end(row)
            continue
        misses += 1
        cache[row] = None
        if len(cache) > cache_rows:
            cache.popitem(last=False)
    return misses / len(reads)


def reads(kind):
    generator = torch.Generator().manual_seed(0)
    match kind:
        case "uniform":
            return torch.randint(0, 800, (20_000,), generator=generator).int()
        case "skewed":
            return (torch.rand(20_000, generator=generator) ** 4 * 800).int()
        case "blocks":
            start = torch.arange(20_000) // 1000 * 40
            return (start + torch.randint(0, 40, (20_000,), generator=generator)).int()
        case _:
            raise ValueError(kind)


@pytest.mark.parametrize("cache_rows", [20, 100, 400])
@pytest.mark.parametrize("kind", ["uniform", "skewed", "blocks"])
def test_misses_are_those_of_a_simulated_cache(kind, cache_rows):
    order = reads(kind)
    predicted = Locality.of(order, 800).miss_share(cache_rows)
    assert predicted == pytest.approx(simulated(order, cache_rows), abs=0.06)


def test_a_sample_of_rows_tells_nearly_the_same(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    order = (torch.rand(200_000, generator=generator) ** 3 * 8000).int()
    whole = Locality.of(order, 8000).miss_share(1000)
    monkeypatch.setattr(cost_model, "SAMPLED_READS", 50_000)
    sampled = Locality.of(order, 8000)
    assert sampled.rows == pytest.approx(len(order.unique()), rel=0.1)
    assert sampled.miss_share(1000) == pytest.approx(whole, abs=0.05)


def test_going_round_in_circles_misses_all_or_nothing():
    circle = torch.arange(100).repeat(50).int()
    assert Locality.of(circle, 100).miss_share(60) == pytest.approx(1.0, abs=0.02)
    assert Locality.of(circle, 100).miss_share(100) == 0.0


def test_threads_share_a_cache():
    order = Locality.of(reads("uniform"), 800)
    assert order.miss_share(200, streams=4) > order.miss_share(200)


def test_no_reads_miss_nothing():
    assert Locality.of(torch.empty(0, dtype=torch.int32), 5).miss_share(1) == 0.0
