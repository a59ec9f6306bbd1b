"""Rows of a graph whose sample is the whole graph, beside the same graph simulated whole."""

import pytest

from onehop.machines.ndp import Machine, NdpPlan
from onehop.reproduce.grande.sampled import MACHINES, WIDTHS, sampled
from tests.machines.ndp.graphs import random_graph
from tests.machines.ndp.test_sampled import Computed


def test_figures_of_a_small_graph_are_those_of_the_whole_on_every_machine() -> None:
    graph = random_graph(400, 6000)
    told: list[float] = []
    host, prior, reads, adjacency, features = sampled(lambda _, done: told.append(done), Computed(graph))
    over_host, over_prior, saved = [], [], []
    for name, sections in MACHINES:
        layers = Machine(name).change(**sections).layers(graph, WIDTHS, NdpPlan(retile="index"), record=0)
        time = sum(layer.time_ns for layer in layers)
        over_host.append(sum(layer.baseline.time_ns for layer in layers) / time)
        over_prior.append(sum(layer.best_prior.serial_ns for layer in layers) / time)
        counted = layers[1].run.traffic.counts.reads.sum()
        saved.append(100 * (1 - counted / graph.num_edges))
    for found, values in ((host, over_host), (prior, over_prior)):
        assert (found.ours, found.low, found.high) == pytest.approx((values[0], min(values), max(values)))
        assert found.low < found.high
    assert (reads.ours, reads.low, reads.high) == pytest.approx((saved[0],) * 3)
    assert adjacency.ours == pytest.approx((graph.num_edges * 8 + 400) / 1e6)
    assert (adjacency.paper, adjacency.verdict) == (26_800.0, "fitted")
    assert features.ours == 400 * 1024 / 1e6
    assert told == [number / len(MACHINES) for number in range(len(MACHINES))]
    assert not any(each.headline for each in (host, prior, reads, adjacency, features))
