"""Times and energy of layers, of the host alone and of prior machines against a naive computation."""

from dataclasses import dataclass, replace

import pytest
import torch

from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpConfig, NdpPlan, Topology
from onehop.machines.ndp.case import LayerCase
from onehop.machines.ndp.durations import times_of
from onehop.machines.ndp.layer import simulate
from onehop.machines.ndp.mapping import Pods, candidates
from onehop.machines.ndp.traffic import Finals, LayerTraffic
from onehop.plans.ndp import BETWEEN_BUNDLES, HOST_ORDERS
from tests.machines.ndp import oracle, oracle_others
from tests.machines.ndp.naive_order import naive_order
from tests.machines.ndp.recurrence import finish

# Every parameter is unlike the others, so that none can stand in for another, and small buffers make many
# windows.
ODD = {
    "dram": {"faw": 41},
    "module": {
        "buffer_kib": 1.0,
        "lanes": 3,
        "clock_mhz": 700.0,
        "adjacency_entry_bytes": 12,
        "row_pointer_bytes": 5,
        "output_buffers": 3,
    },
    "host": {
        "channel_gbps": 7.0,
        "reduce_gbps": 2.5,
        "merge_nodes_per_us": 11.0,
        "instruction_bytes": 10,
    },
    "control": {"start_ns": 1700.0, "poll_ns": 37.0, "access_ns": 13.0, "flush_mib": 0.01},
    "energy": {
        "channel_pj_per_bit": 19.0,
        "local_pj_per_bit": 5.0,
        "add_pj": 3.0,
        "multiply_pj": 17.0,
        "buffer_pj_per_byte": 2.0,
    },
}
# Four channels of two DIMMs of two ranks; and two channels of one DIMM of four, with nodes dealt in blocks of
# three.
MACHINES = {
    "odd_16": NdpConfig("odd_16", Topology(4, 2, 2)).change(**ODD),
    "odd_8": NdpConfig("odd_8", Topology(2, 1, 4, node_block=3)).change(**ODD),
    # The defaults, with buffers for a few windows.
    "plain_16": NdpConfig("plain_16", Topology(4, 2, 2)).change(module={"buffer_kib": 1.0}),
}
PLANS = {
    "re-tiled": NdpPlan(tile=8),
    "re-tiled in batches": NdpPlan(tile=16, retile="ranks", batch=50, broadcast=False),
    "in small batches": NdpPlan(tile=8, retile="round_robin", batch=3),
    "by number": NdpPlan(tile=8, retile="index"),
    "by number, each alone": NdpPlan(tile=8, retile="index", broadcast=False),
    "without tiles": NdpPlan(tile=8, retile="none"),
}
CASES = [(name, plan) for name in MACHINES for plan in PLANS]


@dataclass
class Both:
    """The model's machine and graph, and the oracle's layer for any of its mappings."""

    machine: Machine
    graph: object
    plan: NdpPlan
    width: int
    order: list

    def retiled(self, layer):
        """The oracle's re-tiling in the plan's batches, or in those of one window; None without it."""
        if not self.plan.reorders:
            return None
        return oracle_others.retiled(layer, self.plan.batch or window(layer), self.plan.retile)

    def layer(self, pods, listed=None):
        return oracle.Layer(
            self.machine.config,
            self.graph,
            self.order if listed is None else list(range(self.graph.num_dst)),
            self.plan.reorders if listed is None else listed,
            pods.size,
            self.width,
            self.plan.tile,
            self.plan.broadcast,
        )


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def both(request):
    config, plan = MACHINES[request.param[0]], PLANS[request.param[1]]
    graph = uneven()
    order = list(range(graph.num_dst))
    if plan.reorders:
        order = naive_order(graph, config.topology, plan.retile, plan.batch)
    return Both(Machine(config), graph, plan, 70, order)


def window(layer):
    """Targets of a window."""
    return sum(map(len, layer.groups[0]))


def uneven():
    """A graph with a source of many edges, whose rank has bundles in pieces, and a target of many edges."""
    generator = torch.Generator().manual_seed(7)
    even = torch.randint(0, 150, (2, 900), generator=generator)
    ends = torch.randint(0, 150, (700,), generator=generator)
    from_hub = torch.stack([torch.full((600,), 5), ends[:600]])
    to_hub = torch.stack([ends[600:], torch.full((100,), 7)])
    return Graph.from_edge_index(torch.cat([even, from_hub, to_hub], dim=1), num_nodes=150)


def test_every_duration_of_every_window(both):
    machine = both.machine
    for pods in candidates(machine.config.topology):
        expected = oracle.durations(both.layer(pods), tiled=both.plan.retile != "none")
        traffic = LayerTraffic(
            machine.config,
            machine.workload(both.graph, both.plan),
            pods,
            both.width,
            both.plan.tile,
            both.plan.broadcast,
        )
        found = times_of(traffic, machine.memory)
        assert len(found.pieces) > 3
        assert (found.pod, found.transfer, found.lag) == (expected.pod, expected.transfer, expected.lag)
        for name in ("fill_ns", "poll_ns", "again_ns", "read_ns", "unit_ns", *oracle.WINDOWED):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9), (pods.name, name)


def test_final_vectors_of_another_layer(both):
    """Durations and energy where final vectors have another width and mapping, and the host works on them."""
    machine, topology = both.machine, both.machine.config.topology
    for name, of_finals in (("rank", "system"), ("system", "dimm"), ("channel", "rank")):
        pods, final_pods = Pods.of(topology, name), Pods.of(topology, of_finals)
        finals = Finals(45, 123.0, final_pods)
        layer = replace(both.layer(pods), final_pod=final_pods.size, final_width=45, work_ns=123.0)
        tiled = both.plan.retile != "none"
        expected, workload = oracle.durations(layer, tiled), machine.workload(both.graph, both.plan)
        case = LayerCase(machine.config, machine.memory, both.plan, both.width, finals, retiled=1)
        run = simulate(case, workload, pods)
        found = times_of(run.traffic, machine.memory)
        for each in oracle.WINDOWED:
            assert getattr(found, each) == pytest.approx(getattr(expected, each), rel=1e-9), (name, each)
        assert run.energy_nj() == pytest.approx(oracle.energy(layer, run.time_ns, None, tiled), rel=1e-9)


def test_layers_take_the_oracles_time_in_the_best_order(both):
    """The first layer lists each window's targets while it works on the window before."""
    channels, tiled = both.machine.config.topology.channels, both.plan.retile != "none"
    first, later = both.machine.layers(both.graph, [both.width] * 2, both.plan, record=0)
    for pods in candidates(both.machine.config.topology):
        layer = both.layer(pods)
        orders = HOST_ORDERS if layer.over_host else [o for o in HOST_ORDERS if o not in BETWEEN_BUNDLES]
        for found, listing in ((first, both.retiled(layer)), (later, None)):
            times = oracle.durations(layer, tiled, listing)
            expected = {order: finish(times, channels, order) + oracle.control_ns(layer) for order in orders}
            assert found.candidates[pods.name].orders_ns == pytest.approx(expected, rel=1e-9)
            assert found.candidates_ms()[pods.name] == pytest.approx(min(expected.values()) / 1e6, rel=1e-9)
    assert later.time_ns == pytest.approx(min(later.candidates_ms().values()) * 1e6)


@pytest.mark.parametrize("flags_in_dram", [True, False])
def test_retiling(both, flags_in_dram):
    machine = both.machine.change(module={"flags_in_dram": flags_in_dram})
    plan = replace(both.plan, mapping="channel")
    first, later = machine.layers(both.graph, [both.width] * 2, plan, record=0)
    found = first.run.retiling
    if not both.plan.reorders:
        assert found is None
        return
    both = replace(both, machine=machine)
    expected = both.retiled(both.layer(Pods.of(machine.config.topology, "channel")))
    for name in ("scan_ns", "flags_ns", "store_ns", "modules_ns", "host_ns"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name)), name
    assert found.merge_ns == pytest.approx(sum(expected.merge))
    assert found.bursts_read == pytest.approx(expected.reads)
    assert found.bursts_written == pytest.approx(expected.writes)
    assert found.activations == pytest.approx(expected.opened)
    lists = found.bytes["retile_lists"] + found.bytes["retile_tile_lists"]
    assert lists == expected.channel_bytes
    # Every rank stores the whole list, four bytes a node.
    assert found.bytes["retile_stored"] == 4 * both.graph.num_dst * machine.config.topology.ranks
    assert (found.bytes["retile_flags"] > 0) == flags_in_dram
    # What it adds is what is not hidden.
    assert found.time_ns == pytest.approx(
        first.time_ns - later.candidates["channel"].orders_ns[first.run.host_order]
    )
    assert found.hidden_share == pytest.approx(1 - found.time_ns / (found.modules_ns + found.host_ns))


def test_energy(both):
    for pods in candidates(both.machine.config.topology):
        plan = NdpPlan(
            pods.name, both.plan.tile, both.plan.retile, both.plan.batch, both.plan.broadcast, "adaptive"
        )
        first, later = both.machine.layers(both.graph, [both.width] * 2, plan, record=0)
        layer, tiled = both.layer(pods), both.plan.retile != "none"
        for found, more in ((first, both.retiled(layer)), (later, None)):
            expected = oracle.energy(layer, found.time_ns, more, tiled)
            assert found.run.energy_nj() == pytest.approx(expected, rel=1e-9)


def test_the_host_alone(both):
    found = both.machine.layers(both.graph, [both.width], both.plan, record=0)[0].baseline
    expected = oracle_others.alone(both.layer(Pods.of(both.machine.config.topology, "rank")))
    for name in ("adjacency_ns", "features_ns", "write_ns", "energy_nj"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)
    assert found.bytes == expected.bytes


def test_prior_machines(both):
    topology = both.machine.config.topology
    found = both.machine.layers(both.graph, [both.width], both.plan, record=0)[0].priors
    # The order of targets, tiles and broadcasting of the plan are not theirs, but for the size of tiles.
    assert [one.mapping for one in found] == ["dimm", "rank", "system"]
    for one in found:
        expected = oracle_others.prior(both.layer(Pods.of(topology, one.mapping), listed=False))
        assert one.steps_ns == pytest.approx(expected.steps_ns, rel=1e-9)
        assert one.serial_ns == pytest.approx(expected.serial_ns, rel=1e-9)
        assert one.overlapped_ns == pytest.approx(expected.overlapped_ns, rel=1e-9)
        assert one.bytes == expected.bytes
        assert one.energy_nj == pytest.approx(expected.energy_nj, rel=1e-9)


def test_ranks_without_outputs_cost_prior_machines_no_access():
    # All edges come from node 0, and so from one rank; the host adds up in no time.
    config = MACHINES["odd_16"].change(host={"reduce_gbps": 1e6})
    edge_index = torch.stack([torch.zeros(300, dtype=torch.long), torch.arange(300) % 150])
    graph = Graph.from_edge_index(edge_index, num_nodes=150)
    both = Both(Machine(config), graph, PLANS["by number"], 70, list(range(150)))
    for one in both.machine.layers(graph, [70], both.plan, record=0)[0].priors:
        layer = both.layer(Pods.of(both.machine.config.topology, one.mapping))
        assert one.steps_ns == pytest.approx(oracle_others.prior(layer).steps_ns, rel=1e-9)
