"""Prior machines by name: copies of hubs counted naively, sums in a DIMM, one published figure each."""

from dataclasses import replace

import numpy as np
import pytest

from onehop.errors import ArgumentError
from onehop.machines.ndp import Design, Machine, Mapping, NdpConfig, NdpPlan, Topology, load, mappings
from onehop.machines.ndp.case import LayerCase
from onehop.machines.ndp.counts import RankWorkload, TargetGroups
from onehop.machines.ndp.mapping import Pods, owners
from onehop.machines.ndp.named_priors import DESIGNS, CopiedWorkload, hubs, named_priors
from onehop.machines.ndp.prior import prior_run
from tests.machines.ndp.graphs import circulant, random_graph
from tests.machines.ndp.naive_order import naive_counts

TOPOLOGY = Topology(4, 2, 2)


def case(config, width):
    return LayerCase(config, Machine(config).memory, NdpPlan(), width)


@pytest.mark.parametrize("topology", [TOPOLOGY, Topology(2, 1, 4, node_block=3), Topology(1, 1, 2)], ids=str)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.35, 1.0])
def test_copies_of_hubs_equal_the_naive_count(share, topology):
    graph = random_graph(90, 700, seed=3)
    workload = CopiedWorkload(graph, topology, 8, 64, share)
    counts = workload.counts(TargetGroups(tile=4, block=8, window=16))
    owner, each = owners(topology, 90).tolist(), topology.ranks_per_channel
    degree = graph.out_degrees.tolist()
    hub = sorted(range(90), key=lambda node: (-degree[node], node))[: int(share * 90)]
    assert hubs(graph, share).tolist() == sorted(hub)

    def rank_of(source, target):
        """A hub's copy in the channel of the target."""
        return owner[target] // each * each + owner[source] % each if source in hub else owner[source]

    edges, reads, _, touched = naive_counts(graph, topology.ranks, range(90), rank_of, 4, 16)
    rows = np.zeros_like(edges)
    for target in range(90):
        for channel in range(topology.channels) if target in hub else [owner[target] // each]:
            rows[target // 16, channel * each + owner[target] % each] += 1
    found = (counts.edges, counts.reads, counts.touched[1], counts.rows)
    assert all(map(np.array_equal, found, (edges, reads, touched, rows)))


def test_copies_spare_partial_sums_and_cost_writes():
    graph, config = random_graph(3000, 60_000), load("grande_16")
    plain = RankWorkload(graph, config.topology, 8, 64, retile="index")
    copied = CopiedWorkload(graph, config.topology, 8, 64, 0.35)
    pods = Pods.of(config.topology, "dimm")
    without, with_copies = (prior_run(case(config, 256), work, pods) for work in (plain, copied))
    assert with_copies.bytes["outputs_read"] < without.bytes["outputs_read"]
    hub_writes = int(0.35 * 3000) * 3 * 256 * 4
    assert with_copies.bytes["results_write"] == without.bytes["results_write"] + hub_writes


def test_a_dimm_that_sums_sends_one_vector_for_its_ranks():
    graph, config = circulant(2048, 32), load("grande_16")
    workload = RankWorkload(graph, config.topology, 8, 64, retile="index")
    pods = Pods.of(config.topology, "rank")
    apart = prior_run(case(config, 256), workload, pods)
    summed = prior_run(case(config, 256), workload, pods, DESIGNS["RecNMP"].output_bytes)
    # Each of 32 neighbours in a row has another rank: all ranks of all DIMMs are touched.
    assert apart.bytes["outputs_read"] == 2048 * 16 * 1024
    assert summed.bytes["outputs_read"] == 2048 * 8 * 1024
    assert summed.serial_ns < apart.serial_ns
    assert summed.steps_ns["features"] == apart.steps_ns["features"]


def test_tensordimm_scales_with_its_dimms():
    # Published: bandwidth in proportion to the DIMMs, the claim that the design rests on (MICRO 2019).
    # Vectors of 2 KiB leave each of 32 DIMMs a whole burst.
    graph = circulant(2048, 64)
    features = []
    for dimms in (2, 4, 8):
        config = NdpConfig("scaled", Topology(4, dimms, 1))
        workload = RankWorkload(graph, config.topology, 8, 64, retile="none")
        run = prior_run(case(config, 2048), workload, Pods.of(config.topology, "system"))
        features.append(run.steps_ns["features"])
    assert features[0] / features[1] == pytest.approx(2, rel=0.02)
    assert features[1] / features[2] == pytest.approx(2, rel=0.02)


def test_recnmp_stays_below_what_it_reaches_with_its_caches():
    # Published: up to 9.8x in memory latency with 8 ranks, caches and scheduling included (ISCA 2020,
    # abstract), and 4.2x in throughput. Without these, 8 ranks cannot give more than 8x at equal times a
    # burst; its steps overlap.
    config = NdpConfig("recnmp", Topology(1, 4, 2)).change(dram={"preset": "DDR4_2400"})
    graph = circulant(4096, 80)
    machine = Machine(config)
    found = named_priors(config, graph, [128], 1, ["RecNMP"])[0]
    host = machine.layers(graph, [128], record=0)[0].baseline.features_ns
    # On the bus the vectors of all 8 ranks lie, behind a rank an eighth of them, in fewer rows.
    equal = machine.memory.random(8, on_bus=True, runs=4096).ns / machine.memory.random(8, runs=512).ns
    assert 4.2 < host / found.overlapped_ns < min(9.8, 8.0 * equal)


def test_gnnear_reads_at_the_rate_of_its_artifact():
    # Published: 18.07 of 19.2 GB/s in DRAMsim3's run of products, 256 bytes of a vector in a rank
    # (PKUZHOU/GNNear-PACT-2022). Half a vector of 128 numbers is as long.
    memory = Machine("gnnear").memory
    assert int(Pods.of(load("gnnear").topology, "dimm").slice_bursts(128, 64)[0]) == 4
    assert memory.device.peak_gbps == pytest.approx(19.2, rel=0.01)
    assert 64 / memory.random(4).ns == pytest.approx(18.07, rel=0.05)


def test_wrong_names_and_graphs_are_refused():
    config = load("grande_16")
    with pytest.raises(
        ArgumentError,
        match=r"prior: expected one of TensorDIMM, RecNMP, GNNear, G-NMP, or .* got 'GraNDe'",
    ):
        named_priors(config, random_graph(30, 90), [16], 8, ["GraNDe"])
    with pytest.raises(ArgumentError, match="expected the same nodes"):
        named_priors(config, random_graph(30, 90, num_src=40), [16], 8)


def test_designs_are_what_their_papers_describe():
    assert {name: one.mappings for name, one in DESIGNS.items()} == {
        "TensorDIMM": ("system",),
        "RecNMP": ("rank",),
        "GNNear": ("dimm",),
        "G-NMP": ("rank", "system"),
    }
    assert DESIGNS["GNNear"].copied_share == 0.35
    assert all(one.left_out and one.source for one in DESIGNS.values())


def test_named_machines_are_their_parts():
    # Of G-NMP, the choice of a mapping by the size of vectors is modelled. Its published gain is over a
    # machine that the abstract does not name.
    graph, config, widths = random_graph(2000, 30_000), load("grande_16"), [48, 256]
    # One unit a DIMM: half the ranks.
    by_dimm = config.change(topology={"ranks_per_dimm": 1})

    def alone(config, mapping, width, workload=RankWorkload, sums_in_dimm=False, **share):
        retile = {} if share else {"retile": "index"}
        work = workload(graph, config.topology, 8, 64, *share.values(), **retile)
        outputs = [DESIGNS["RecNMP"].output_bytes] if sums_in_dimm else []
        return prior_run(case(config, width), work, Pods.of(config.topology, mapping), *outputs)

    expected = {
        "TensorDIMM": [alone(by_dimm, "system", width) for width in widths],
        "RecNMP": [alone(config, "rank", width, sums_in_dimm=True) for width in widths],
        "GNNear": [alone(config, "dimm", width, CopiedWorkload, share=0.35) for width in widths],
        "G-NMP": [
            min((alone(config, mapping, width) for mapping in ("rank", "system")), key=lambda r: r.serial_ns)
            for width in widths
        ],
    }
    for one in named_priors(config, graph, widths, 128):
        runs = expected[one.name]
        assert one.serial_ns == sum(run.serial_ns for run in runs)
        assert one.overlapped_ns == sum(run.overlapped_ns for run in runs)
        assert one.reads == sum(run.reads for run in runs)
        assert one.mappings == [run.mapping for run in runs]


@pytest.mark.parametrize("bad", [0, -3, 2.5, True])
def test_widths_and_tiles_that_cannot_be(bad):
    graph, config = random_graph(30, 90), load("grande_16")
    with pytest.raises(ArgumentError, match=r"width: expected an integer of at least 1, got"):
        named_priors(config, graph, [16, bad], 8)
    with pytest.raises(ArgumentError, match=r"tile: expected an integer of at least 1, got"):
        named_priors(config, graph, [16], bad)


def test_a_design_of_a_user(monkeypatch):
    """One unit for each channel, whose pods are a user's mapping that assigns nodes in blocks."""
    graph, config, widths = random_graph(2000, 30_000), load("grande_16"), [48, 256]
    blocks = replace(config, topology=replace(config.topology, node_block=64))

    class Blocks(Mapping):
        name = "blocks"

        def size(self, topology):
            return topology.ranks_per_channel

        def owners(self, topology, nodes):
            return owners(replace(topology, node_block=64), nodes)

    class Mine(Design):
        name, mappings = "Mine", ("blocks",)

        def on(self, given):
            return given.change(module={"lanes": 8})

        def output_bytes(self, traffic):
            return traffic.output_bytes // 2

    monkeypatch.setitem(mappings, "blocks", Blocks())
    monkeypatch.setitem(DESIGNS, "Mine", Mine())
    everything = named_priors(config, graph, widths, 128)
    assert [one.name for one in everything] == ["TensorDIMM", "RecNMP", "GNNear", "G-NMP", "Mine"]
    narrow = blocks.change(module={"lanes": 8})
    workload = RankWorkload(graph, blocks.topology, 8, 64, retile="index")
    pods = Pods.of(blocks.topology, "channel")
    runs = [prior_run(case(narrow, width), workload, pods, Mine().output_bytes) for width in widths]
    assert everything[-1].serial_ns == sum(run.serial_ns for run in runs)
    assert everything[-1].reads == sum(run.reads for run in runs)
    assert everything[-1].mappings == ["blocks", "blocks"]
