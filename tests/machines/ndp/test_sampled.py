"""Layers estimated from samples of their windows, beside the same layers simulated whole."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom

from onehop import datasets
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops
from onehop.machines.ndp import Estimate, Machine, NdpPlan, Sample, load, sampled_report
from onehop.machines.ndp.sampled import total
from onehop.machines.ndp.sampled_windows import Stretch, stretches
from onehop.machines.ndp.sampling import Runs
from tests.machines.ndp.graphs import random_graph
from tests.pairs import pairwise

EVERY = Sample(10**6)


@pytest.fixture(scope="module")
def machine():
    """Buffers of 16 KiB make windows of 128 targets or a few hundred, of which a small graph has many."""
    return Machine(load("grande_16").change(module={"buffer_kib": 16.0}))


@pytest.fixture(scope="module", params=[("arxiv-communities", 0.2), ("products", 0.01)], ids=str)
def twin(request):
    name, scale = request.param
    found = datasets.twin(name, 0, scale, features=False)
    return with_self_loops(Graph.from_edge_index(found.edge_index, num_nodes=found.num_nodes))


class Computed:
    """Rows of a graph as a source of rows, which counts those it was asked for."""

    def __init__(self, graph):
        self.num_nodes, self.asked = graph.num_dst, 0
        self._rowptr, self._col = graph.rowptr.numpy(), graph.col.numpy()

    def rows(self, nodes):
        self.asked += len(nodes)
        each = [self._col[self._rowptr[node] : self._rowptr[node + 1]] for node in nodes]
        return np.cumsum([0, *map(len, each)]), np.concatenate(each)


@pairwise(width=[64, 100], retile=["index", "rows", "ranks", "none"])
def test_a_sample_of_all_windows_is_the_whole(machine, twin, retile, width):
    plan = NdpPlan(retile=retile)
    whole = machine.layers(twin, [width, width], plan, record=0)
    found = machine.sampled(twin, [width, width], plan, EVERY)
    for one, full in zip(found, whole, strict=True):
        assert one.mapping == full.run.mapping
        assert one.chosen.host_order == full.run.host_order
        assert one.time_ns == Estimate.exact(full.time_ns)
        assert {name: each.orders_ns for name, each in one.candidates.items()} == {
            name: each.orders_ns for name, each in full.candidates.items()
        }
        for name, each in one.candidates.items():
            assert each.windows == each.simulated
            assert each.bound_ns == pytest.approx(full.candidates[name].bound_ns, rel=1e-12)
        assert one.baseline_ns == Estimate.exact(full.baseline.time_ns)
        assert one.edges == Estimate.exact(twin.num_edges)
        reads = full.run.traffic.counts.reads.sum()
        assert one.read_reduction_percent.value == pytest.approx(100 * (1 - reads / twin.num_edges))
        for prior in full.priors:
            assert one.prior_ns[prior.mapping].value == pytest.approx(prior.serial_ns, rel=1e-12)
        gain = full.baseline.time_ns / full.time_ns
        assert one.speedup_over_baseline.value == pytest.approx(gain)
        assert one.speedup_over_prior.value == pytest.approx(full.best_prior.serial_ns / full.time_ns)
    assert (found[0].time_ns.value > found[1].time_ns.value) == (retile in ("rows", "ranks"))


@pytest.mark.parametrize(("mapping", "retile"), [("rank", "index"), ("rank", "rows"), ("dimm", "index")])
def test_intervals_hold_the_wholes_figures_as_often_as_they_say(machine, twin, mapping, retile):
    plan, width, samples = NdpPlan(mapping, retile=retile), 64, 50
    whole = machine.layers(twin, [width], plan, record=0)[0]
    truth = {
        "time": whole.time_ns,
        "gain": whole.baseline.time_ns / whole.time_ns,
        "reads": 100 * (1 - whole.run.traffic.counts.reads.sum() / twin.num_edges),
    }
    held = dict.fromkeys(truth, 0)
    for seed in range(samples):
        one = machine.sampled(twin, [width], plan, Sample(8, seed))[0]
        assert one.chosen.simulated < one.chosen.windows
        found = {
            "time": one.time_ns,
            "gain": one.speedup_over_baseline,
            "reads": one.read_reduction_percent,
        }
        for name, each in found.items():
            assert each.low < each.value < each.high
            held[name] += bool(each.low <= truth[name] <= each.high)
    # Fewer than one in ten thousand such tests would come below this if 95 % held.
    least = binom.ppf(1e-4, samples, Sample().confidence)
    assert min(held.values()) >= least, held


def test_less_confidence_makes_narrower_intervals_that_hold_less_often(machine, twin):
    plan = NdpPlan("rank", retile="index")
    truth = machine.layers(twin, [64], plan, record=0)[0].time_ns
    samples = [machine.sampled(twin, [64], plan, Sample(8, seed, 0.5))[0].time_ns for seed in range(50)]
    held = sum(each.low <= truth <= each.high for each in samples)
    assert binom.ppf(1e-4, 50, 0.5) <= held <= binom.ppf(1 - 1e-4, 50, 0.5)
    wide = machine.sampled(twin, [64], plan, Sample(8, 0, 0.95))[0].time_ns
    assert wide.value == samples[0].value
    assert wide.half > 2 * samples[0].half


def test_rows_that_are_computed_give_what_stored_ones_give(machine):
    graph = random_graph(40_000, 200_000)
    source = Computed(graph)
    sample = Sample(6, 3)
    found = machine.sampled(source, [64], sample=sample)[0]
    stored = machine.sampled(graph, [64], NdpPlan(retile="index"), sample)[0]
    assert found.candidates == stored.candidates
    assert found.prior_ns == stored.prior_ns
    # Nobody has counted its edges, so the host's time is estimated too.
    assert found.edges.low < found.edges.high
    assert found.edges.low <= graph.num_edges <= found.edges.high
    assert found.baseline_ns.low <= stored.baseline_ns.value <= found.baseline_ns.high


def test_rows_of_the_windows_alone_are_computed(machine):
    source = Computed(random_graph(60_000, 60_000))
    found = machine.sampled(source, [64], NdpPlan("rank", retile="none"), Sample(2))[0]
    window = 16 * 1024 // (64 * 4)
    # The candidate, and the rank-pods of prior machines, which are tiled by number; others are wider.
    assert found.chosen.windows == math.ceil(60_000 / window)
    assert found.chosen.simulated <= 2 * (8 + 4 + 1) + 5 + 12
    assert source.asked < 60_000


def test_strata_and_weights():
    runs = Runs.draw(402, Sample(10, 1), (0,))
    # 101 runs: the first, the last, and 99 in five strata.
    assert runs.runs_of.sum() == 101
    assert sorted(runs.runs_of.tolist()) == [1, 1, 19, 20, 20, 20, 20]
    assert runs.first[0] == 0
    assert runs.last[-1] == 402
    assert runs.first[-1] == 400
    assert len(runs.first) == 12
    assert runs.weight.sum() == pytest.approx(101)
    assert (np.diff(runs.first) > 0).all()
    # A sum of ones: windows of all runs but the last, which has two.
    windows = (runs.last - runs.first).astype(float)
    assert runs.estimate(windows) == Estimate.exact(402.0)


def test_the_error_is_that_of_the_textbook():
    # Cochran (1977), 5.13: strata of 6 and 4 runs, two drawn from each, after one that is known.
    runs = Runs(np.arange(5) * 4, np.arange(5) * 4 + 4, np.array([0, 1, 1, 2, 2]), np.array([1, 6, 4]), 0.9)
    found = runs.estimate(np.array([7.0, 1.0, 3.0, 10.0, 16.0]))
    assert found.value == pytest.approx(7 + 6 * 2 + 4 * 13)
    variance = 6 * 6 * (1 - 2 / 6) * 2 / 2 + 4 * 4 * (1 - 2 / 4) * 18 / 2
    # The 95 % quantile of Student's distribution with two degrees of freedom.
    assert found.half == pytest.approx(2.919986 * variance**0.5, rel=1e-6)


def test_stretches_hold_their_runs_and_the_windows_around_them():
    runs = Runs(
        np.array([0, 40, 52, 96]), np.array([4, 44, 56, 98]), np.arange(4), np.ones(4, dtype=int), 0.9
    )
    assert stretches(runs, 98) == [Stretch(0, 5, (0, 1)), Stretch(32, 57, (1, 3)), Stretch(88, 98, (3, 4))]
    touching = Runs(np.array([0, 13]), np.array([4, 17]), np.arange(2), np.ones(2, dtype=int), 0.9)
    assert stretches(touching, 98) == [Stretch(0, 18, (0, 2))]


def test_layers_of_one_width_have_one_sample(machine, twin):
    first, second, third = machine.sampled(twin, [32, 64, 64], NdpPlan("rank", retile="index"), Sample(4))
    assert second is third
    assert first.time_ns != second.time_ns
    found = sampled_report([first, second, third])
    half = (first.time_ns.half**2 + (2 * second.time_ns.half) ** 2) ** 0.5 / 1e6
    assert found["time_ms_high"] - found["time_ms"] == pytest.approx(half)
    for name in ("time_ms", "bound_ms"):
        assert found[name] == pytest.approx(sum(layer[name] for layer in found["layers"]), rel=1e-9)
    assert total([Estimate(3, 2, 4), Estimate(5, 1, 9)]) == Estimate.within(8, 17**0.5)


@pytest.mark.parametrize(
    ("change", "plan", "sample", "message"),
    [
        ({}, NdpPlan(), Sample(), "re-tiling .* lists the sources of every row"),
        ({"host": {"llc_mib": 1.0}}, None, Sample(), "host.llc_mib"),
        ({"module": {"buffer_kib": 0.0625}}, NdpPlan("rank", retile="index"), Sample(), "cannot hold"),
        ({"module": {"buffer_kib": 0.0078125}}, None, Sample(), "cannot hold"),
    ],
)
def test_what_cannot_be_sampled_is_refused(machine, change, plan, sample, message):
    with pytest.raises(ArgumentError, match=message):
        machine.change(**change).sampled(Computed(random_graph(500, 900)), [64], plan, sample)


def test_graphs_without_destinations_and_bad_widths_are_refused(machine):
    with pytest.raises(ArgumentError, match="no destinations"):
        machine.sampled(Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=0), [64])
    for width in (0, 2.5, True):
        with pytest.raises(ArgumentError, match="width"):
            machine.sampled(random_graph(50, 90), [width])


@pytest.mark.parametrize(
    "values", [{"runs": 1}, {"runs": 2.0}, {"seed": -1}, {"confidence": 1.0}, {"confidence": 0.0}]
)
def test_samples_that_cannot_be(values):
    with pytest.raises(ArgumentError, match="sample: "):
        replace(Sample(), **values)


def growing(nodes):
    """A graph whose later nodes have up to forty times as many edges as its first ones."""
    degree = 1 + 39 * np.arange(nodes) // nodes
    target = torch.from_numpy(np.repeat(np.arange(nodes), degree))
    source = torch.randint(0, nodes, (len(target),), generator=torch.Generator().manual_seed(1))
    return Graph.from_edge_index(torch.stack([source, target]), num_nodes=nodes)


def test_a_gain_is_surer_than_the_time_where_both_grow_with_the_edges(machine):
    # Where the host's part costs nothing, windows take as long as their edges are many.
    machine = machine.change(
        host={"channel_gbps": math.inf, "reduce_gbps": math.inf}, control={"poll_ns": 0.0, "access_ns": 0.0}
    )
    graph, plan = growing(20_000), NdpPlan("rank", retile="none")
    whole = machine.layers(graph, [64], plan, record=0)[0]
    gain, samples = whole.baseline.time_ns / whole.time_ns, 20
    held, of_gain, of_time = 0, 0.0, 0.0
    for seed in range(samples):
        found = machine.sampled(Computed(graph), [64], plan, Sample(4, seed))[0]
        over_host, time = found.speedup_over_baseline, found.time_ns
        of_gain += over_host.half / over_host.value
        of_time += time.half / time.value
        held += bool(over_host.low <= gain <= over_host.high)
    assert 0 < of_gain < 0.5 * of_time
    assert held >= binom.ppf(1e-4, samples, Sample().confidence)


def test_the_error_of_a_gain_over_prior_machines_is_that_of_both(machine, twin):
    one = machine.sampled(twin, [64], NdpPlan("dimm", retile="index"), Sample(4))[0]
    errors = [each.half / each.value for each in (one.best_prior_ns, one.time_ns)]
    assert one.best_prior_ns == min(one.prior_ns.values(), key=lambda each: each.value)
    gain = one.speedup_over_prior
    assert gain.value == pytest.approx(one.best_prior_ns.value / one.time_ns.value)
    assert gain.half / gain.value == pytest.approx(math.hypot(*errors))
    assert min(errors) > 0
    # Of a graph in memory the edges are known, and with them the host's time.
    assert one.baseline_ns.half == 0.0
    over_host = one.speedup_over_baseline
    assert over_host.half / over_host.value == pytest.approx(errors[1])


def test_a_sample_of_a_graph_without_edges_saves_no_reads(machine):
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=9000)
    found = machine.sampled(graph, [64], NdpPlan("rank", retile="index"), Sample(2))[0]
    assert found.read_reduction_percent == found.edges == Estimate.exact(0)
    assert found.time_ns.value > 0


def test_the_report_of_a_sample_has_every_estimate_and_its_ends(machine, twin):
    first, second = machine.sampled(twin, [32, 64], NdpPlan(retile="index"), Sample(4, 2, 0.9))
    found = sampled_report([first, second])
    assert found["sample"] == {"runs": 4, "seed": 2, "confidence": 0.9}
    time, host = (
        total([getattr(one, name) for one in (first, second)]) for name in ("time_ns", "baseline_ns")
    )
    prior = total([first.best_prior_ns, second.best_prior_ns])
    for name, other in (("speedup_over_baseline", host), ("speedup_over_prior", prior)):
        assert found[name] == pytest.approx(other.value / time.value)
        relative = math.hypot(other.half / other.value, time.half / time.value)
        assert found[f"{name}_high"] - found[name] == pytest.approx(found[name] * relative)
        assert found[name] - found[f"{name}_low"] == pytest.approx(found[name] * relative)
    for one, layer in zip((first, second), found["layers"], strict=True):
        assert (layer["width"], layer["mapping"]) == (one.width, one.mapping)
        assert layer["host_order"] == one.chosen.host_order
        for name, each, factor in (
            ("time_ms", one.time_ns, 1e-6),
            ("baseline_ms", one.baseline_ns, 1e-6),
            ("speedup_over_baseline", one.speedup_over_baseline, 1),
            ("speedup_over_prior", one.speedup_over_prior, 1),
            ("read_reduction_percent", one.read_reduction_percent, 1),
            ("edges", one.edges, 1),
        ):
            ends = [layer[name + end] for end in ("", "_low", "_high")]
            assert ends == pytest.approx([each.value * factor, each.low * factor, each.high * factor])
        for name, each in one.candidates.items():
            line = layer["candidates"][name]
            assert line["time_ms"] == pytest.approx(each.time_ns.value / 1e6)
            assert line["bound_ms"] == pytest.approx(each.bound_ns / 1e6)
            assert line["orders_ms"] == pytest.approx({o: ns / 1e6 for o, ns in each.orders_ns.items()})
            assert (line["windows"], line["simulated"]) == (each.windows, each.simulated)
        for name, each in one.prior_ns.items():
            assert layer["prior"][name]["serial_ms"] == pytest.approx(each.value / 1e6)
    alone = sampled_report([first])
    assert alone["speedup_over_baseline_high"] == first.speedup_over_baseline.high
    orders = {first.chosen.host_order, second.chosen.host_order}
    assert set(found["host_order"].split(", ")) == orders
