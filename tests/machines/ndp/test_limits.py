"""What the model must come to where the answer is known beforehand."""

import math

import pytest
import torch

from onehop import Graph
from onehop.machines.ndp import Machine, NdpConfig, NdpPlan, Topology, load
from tests.machines.ndp.graphs import circulant

# No costs of control, a host of unlimited speed, and units that never set the pace.
FREE = {
    "host": {"channel_gbps": math.inf, "reduce_gbps": math.inf},
    "control": {"start_ns": 0.0, "poll_ns": 0.0, "access_ns": 0.0, "flush_mib": 0.0},
    "module": {"clock_mhz": 1e9},
}


def layer(config, width, mapping, graph=None):
    plan = NdpPlan(mapping, retile="none")
    return Machine(config).layers(graph or circulant(4096, 64), [width], plan)[0]


@pytest.mark.parametrize(("dimms", "ranks"), [(1, 1), (1, 2), (2, 2), (4, 2)])
def test_without_a_host_and_imbalance_the_gain_is_ranks_per_channel(dimms, ranks):
    config = NdpConfig("ideal", Topology(4, dimms, ranks)).change(**FREE)
    found = layer(config, 256, "rank")
    # What the host's bus and a rank's own path take for one burst of a vector differs a little.
    memory = Machine(config).memory
    ratio = memory.random(16, on_bus=True).ns / memory.random(16).ns
    speedup = found.baseline.time_ns / found.time_ns
    assert speedup / ratio == pytest.approx(dimms * ranks, rel=0.03)


def test_one_rank_a_channel_takes_the_baselines_time_and_the_windows_overhead():
    config = NdpConfig("single", Topology(4, 1, 1)).change(**FREE)
    found = layer(config, 256, "rank")
    windows = len(found.run.schedule.ends_ns)
    overhead = 3 * windows * Machine(config).memory.fill_ns
    assert found.baseline.time_ns <= found.time_ns <= found.baseline.time_ns * 1.001 + overhead


@pytest.mark.parametrize(("width", "slice_bytes"), [(256, 32), (128, 16), (64, 8)])
def test_system_pods_lose_64_over_the_slice(width, slice_bytes):
    config = load("grande_32").change(**FREE)
    full, short = (layer(config, columns, "system").run for columns in (512, width))
    fill = Machine(config).memory.fill_ns

    def reading(run):
        # Each window has one fill a bundle.
        return run.schedule.rank_busy_ns[0, 1] - len(run.schedule.ends_ns) * 32 * fill

    per_useful_byte = [reading(run) / run.bytes()["feature_useful"] for run in (full, short)]
    assert per_useful_byte[1] / per_useful_byte[0] == pytest.approx(64 / slice_bytes, rel=1e-9)


def test_a_cache_helps_the_baseline_alone():
    graph = circulant(4096, 64)
    config = load("grande_16")
    cached = Machine(config.change(host={"llc_mib": 32.0})).layers(graph, [256], NdpPlan())[0]
    plain = Machine(config).layers(graph, [256], NdpPlan())[0]
    assert cached.baseline.hits == graph.num_edges - 4096
    assert cached.baseline.reads == 4096
    assert cached.baseline.time_ns < plain.baseline.time_ns
    assert cached.time_ns == plain.time_ns


@pytest.mark.parametrize(("sources", "reads"), [(16, 16), (17, 170)])
def test_a_set_of_the_baselines_cache_holds_16_vectors(sources, reads):
    # Ten targets read the same even sources in turn. A cache of 32 vectors has two sets of 16 ways, and all
    # even sources fall into one: 16 are read once, and of 17 each is evicted just before it is wanted again.
    target = torch.arange(10).repeat_interleave(sources)
    source = 2 * torch.arange(sources).repeat(10)
    graph = Graph.from_edge_index(torch.stack([source, target]), num_nodes=40)
    config = load("grande_16").change(host={"llc_mib": 32 * 1024 / 2**20})
    assert Machine(config).layers(graph, [256], NdpPlan("rank"))[0].baseline.reads == reads


def test_levels_of_the_dram_agree():
    config, graph = load("grande_16"), circulant(2048, 32)
    curve = layer(config.change(dram={"level": "curve"}), 256, "channel", graph).time_ns
    by_command = layer(config, 256, "channel", graph).time_ns
    assert curve == pytest.approx(by_command, rel=0.01)
