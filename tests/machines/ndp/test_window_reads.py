"""Feature reads of windows: which bursts they are, and that the model of the DRAM is right about them."""

import pytest
import torch

from onehop.graph import Graph
from onehop.machines.dram import Memory
from onehop.machines.ndp import Machine, NdpPlan, load
from onehop.machines.ndp.window_reads import model_error_percent, sampled_reads, window_reads
from tests.machines.ndp.graphs import random_graph


def run_of(graph, width, mapping, retile="rows", config=None, tile=16):
    machine = Machine(config or "grande_16")
    return machine.layers(graph, [width], NdpPlan(mapping, retile=retile, tile=tile), record=0)[0].run


def naive(run, window, rank):
    """Bundle by bundle, tile by tile, a source once a tile."""
    work, pods, shape = run.workload, run.traffic.pods, run.traffic.shape
    graph, first = work.graph, rank // pods.size * pods.size
    order = list(range(graph.num_dst)) if work.order is None else work.order.tolist()
    rowptr, col, owner = graph.rowptr.tolist(), graph.col.tolist(), work.owner.tolist()
    dealt = [[n for n in range(graph.num_src) if owner[n] == first + j] for j in range(pods.size)]
    place = {node: i for i, node in enumerate(node for bundle in dealt for node in bundle)}
    bursts, out = int(pods.slice_bursts(run.traffic.width, 64)[rank]), []
    targets = order[window * shape.window : (window + 1) * shape.window]
    for bundle in range(first, first + pods.size):
        for begin in range(0, len(targets), shape.tile):
            seen = set()
            for target in targets[begin : begin + shape.tile]:
                for source in col[rowptr[target] : rowptr[target + 1]]:
                    if owner[source] == bundle and (source not in seen or work.retile == "none"):
                        seen.add(source)
                        out += [place[source] * bursts + i for i in range(bursts)]
    return out


@pytest.mark.parametrize("retile", ["rows", "index", "none"])
@pytest.mark.parametrize("mapping", ["rank", "dimm", "channel", "system"])
def test_bursts_are_those_of_the_bundles_in_order(mapping, retile):
    run = run_of(random_graph(300, 3000, seed=4), 40, mapping, retile)
    for window in (0, len(run.schedule.ends_ns) - 1):
        for rank in (0, 5, 15):
            found = window_reads(run, window, rank)
            assert found.bursts.tolist() == naive(run, window, rank)
            assert not found.writes.any()


@pytest.mark.parametrize("mapping", ["rank", "2-channel", "system"])
def test_bursts_of_all_windows_are_the_traffic(mapping):
    run = run_of(random_graph(700, 9000), 100, mapping)
    for rank in (0, 9):
        counts = [len(window_reads(run, window, rank)) for window in range(len(run.schedule.ends_ns))]
        assert counts == run.traffic.feature_bursts[:, rank].tolist()


@pytest.mark.parametrize("faw", ["preset", "sheet"])
@pytest.mark.parametrize("mapping", ["dimm", "channel", "system"])
def test_the_model_is_right_about_windows(mapping, faw):
    config = load("grande_16").change(dram={"faw": faw})
    run = run_of(random_graph(20_000, 300_000), 256, mapping, "index", config, tile=128)
    assert abs(model_error_percent(run)) < 4


def test_a_model_that_is_wrong_is_found(monkeypatch):
    run = run_of(random_graph(20_000, 300_000), 256, "channel", "index", tile=128)
    right, commands = model_error_percent(run), Memory.commands

    def slower(memory, requests, log=True):
        return commands(Memory(memory.dram.with_timing(faw=400), 1, memory.layout), requests, log=log)

    monkeypatch.setattr(Memory, "commands", slower)
    assert model_error_percent(run) < right - 10


def test_without_reads_there_is_no_error():
    assert model_error_percent(run_of(random_graph(30, 0), 16, "rank")) == 0


def test_windows_of_the_model_s_check_are_spread_over_the_layer(monkeypatch):
    run = run_of(random_graph(2000, 20_000), 256, "rank", "index")
    last, asked = len(run.schedule.ends_ns) - 1, []

    def noted(run, window, rank):
        asked.append((window, rank))
        return window_reads(run, window, rank)

    monkeypatch.setattr("onehop.machines.ndp.window_reads.window_reads", noted)
    model_error_percent(run)
    assert last > 3
    assert [window for window, _ in asked] == [0, last // 3, 2 * last // 3, last]
    reads = run.traffic.pod_reads
    assert all(reads[window, rank] == reads[window].max() for window, rank in asked)


def test_windows_without_reads_are_passed_over():
    # Only the last third of the targets has edges.
    generator = torch.Generator().manual_seed(2)
    source = torch.randint(0, 3000, (30_000,), generator=generator)
    target = torch.randint(2000, 3000, (30_000,), generator=generator)
    graph = Graph.from_edge_index(torch.stack([source, target]), num_nodes=3000)
    run = run_of(graph, 256, "rank", "index")
    assert run.traffic.pod_reads[0].sum() == 0
    assert 0 < abs(model_error_percent(run)) < 10


def test_a_sample_is_of_the_rank_that_reads_most():
    run = run_of(random_graph(900, 9000), 256, "rank", "index")
    sample, last = sampled_reads(run), len(run.schedule.ends_ns) - 1
    assert last > 3
    assert sample.windows == [0, last // 3, 2 * last // 3, last]
    reads = run.traffic.pod_reads.sum(axis=0)
    assert reads[sample.rank] == reads.max()
    wanted = [burst for window in sample.windows for burst in naive(run, window, sample.rank)]
    assert sample.requests.bursts.tolist() == wanted
    assert not sample.requests.writes.any()


def test_without_reads_the_sample_is_empty():
    sample = sampled_reads(run_of(random_graph(30, 0), 16, "rank"))
    assert (sample.windows, len(sample.requests)) == ([], 0)
