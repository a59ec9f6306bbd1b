"""Prior near-data machines on the same ranks, simulated window by window and step by step."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from onehop.machines.ndp import energy
from onehop.machines.ndp.case import LayerCase
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.durations import Reals, read_cost
from onehop.machines.ndp.mapping import ELEMENT_BYTES, Integers, Pods
from onehop.machines.ndp.memory_times import MemoryTimes
from onehop.machines.ndp.traffic import LayerTraffic, sums

# GNNear's mapping is DIMM-pods; G-NMP cuts vectors vertically or horizontally, depending on their size.
PRIOR_PODS = ("dimm", "rank", "system")


@dataclass(frozen=True, slots=True)
class PriorSteps:
    """Steps of a prior machine, window by window.

    Attributes:
        pre: [W]: the host reads the adjacency and sends instructions.
        features: [W]: the modules reduce.
        post: [W]: the host reads outputs and writes results.
    """

    pre: Reals
    features: Reals
    post: Reals

    @property
    def serial(self) -> Reals:
        """Return [W]: time of a window whose steps follow one another, as the paper draws prior work."""
        return self.pre + self.features + self.post

    @property
    def overlapped(self) -> Reals:
        """Return [W]: time of a window whose steps overlap perfectly, as in GNNear's own model."""
        return np.maximum(np.maximum(self.pre, self.features), self.post)


@dataclass(frozen=True, slots=True)
class PriorRun:
    """A prior near-data machine on the same ranks.

    Attributes:
        mapping: Its mapping.
        serial_ns: Time with the steps of every window one after another, as the paper draws prior work.
        overlapped_ns: Time with only the longest step of every window, as in GNNear's own model.
        steps_ns: Sums over the windows: "pre", "features", "post".
        reads: Feature vectors read, over all pods.
        bytes: Bytes over all channels and ranks, by kind.
        energy_nj: Energy of DRAM, both paths, units and buffers, over the serial time.
    """

    mapping: str
    serial_ns: float
    overlapped_ns: float
    steps_ns: dict[str, float]
    reads: int
    bytes: dict[str, int]
    energy_nj: dict[str, float]


def prior(case: LayerCase, workload: RankWorkload) -> list[PriorRun]:
    """Simulate prior near-data machines: one for each mapping whose slices fit into a buffer.

    In each window, the host reads the adjacency and sends instructions, the modules reduce, and the host
    reads their outputs and writes the results to DRAM. Everything except the reduction uses the bus. If the
    ranks of a pod share a buffer chip, the host sends one instruction to each DIMM of the pod, as in GNNear;
    otherwise it sends one to each rank. Targets are tiled in node order, the order of the workload.
    """
    every = [Pods.of(case.config.topology, name) for name in PRIOR_PODS]
    buffer = case.config.module.buffer_bytes
    return [prior_run(case, workload, pods) for pods in every if pods.slice_bytes(case.width).max() <= buffer]


def prior_run(
    case: LayerCase,
    workload: RankWorkload,
    pods: Pods,
    outputs: Callable[[LayerTraffic], Integers] = attrgetter("output_bytes"),
) -> PriorRun:
    """Simulate one prior machine under one mapping whose slices fit into a buffer; see :func:`prior`.

    ``outputs`` returns [W, a multiple of the channels], the bytes of outputs that the host reads.
    """
    config, memory = case.config, case.memory
    traffic = LayerTraffic(config, workload, pods, case.width, case.plan.tile, broadcast=False)
    output_bytes = outputs(traffic)
    steps = steps_of(traffic, memory, output_bytes)
    serial_ns, burst = float(steps.serial.sum()), config.burst_bytes
    structure, instructions = _structure_bytes(traffic), _instruction_bytes(traffic)
    moved = {
        "adjacency_read": int((-(-structure // burst)).sum()) * burst,
        "instructions": int(instructions.sum()) * config.topology.channels,
        "feature_read": int(traffic.feature_bursts.sum()) * burst,
        "outputs_read": int(output_bytes.sum()),
        "results_write": int(traffic.write_bursts.sum()) * burst,
    }
    return PriorRun(
        pods.name,
        serial_ns,
        float(steps.overlapped.sum()),
        {
            "pre": float(steps.pre.sum()),
            "features": float(steps.features.sum()),
            "post": float(steps.post.sum()),
        },
        int(traffic.counts.reads.sum()),
        moved,
        _prior_energy_nj(traffic, memory, moved, serial_ns),
    )


def steps_of(traffic: LayerTraffic, memory: MemoryTimes, output_bytes: Integers) -> PriorSteps:
    """Return the steps of a prior machine's windows in node order, without broadcasting; see :func:`prior`.

    ``output_bytes``: [W, a multiple of the channels], bytes of outputs that the host reads.
    """
    config, pods, width = traffic.config, traffic.pods, traffic.width
    topology, channels = config.topology, config.topology.channels
    bursts = traffic.slice_bursts
    columns = pods.slice_bytes(width) // ELEMENT_BYTES

    adjacency = _structure_bytes(traffic) / channels * memory.byte_ns()
    pre = adjacency + _instruction_bytes(traffic) * memory.byte_ns("write") + config.control.poll_ns

    read_ns = bursts * np.array([read_cost(traffic, memory, int(n)).ns for n in bursts])
    unit_ns = -(-columns // config.module.lanes) * 1000.0 / config.module.clock_mhz
    work = np.maximum(traffic.pod_reads * read_ns, traffic.pod_edges * unit_ns)
    features = work.max(axis=1) + memory.fill_ns

    touched = sums((output_bytes > 0).astype(np.int64), channels)
    outputs = sums(output_bytes, channels) * memory.byte_ns() + touched * config.control.access_ns
    in_channel = traffic.pod_nodes * topology.ranks_per_channel
    results = traffic.write_bursts * np.array(
        [memory.random(int(n), "write", on_bus=True, runs=in_channel).ns for n in bursts]
    )
    results = sums(results, channels)
    reduce = output_bytes.sum(axis=1) / config.host.reduce_gbps
    post = np.maximum(outputs.max(axis=1), reduce) + results.max(axis=1)
    post += config.control.poll_ns
    return PriorSteps(pre, features, post)


def _structure_bytes(traffic: LayerTraffic) -> Integers:
    """Return [W]: bytes of the adjacency and its row pointers."""
    edges: Integers = traffic.adjacency_bytes.sum(axis=1)
    return edges + traffic.targets * traffic.config.module.row_pointer_bytes


def _instruction_bytes(traffic: LayerTraffic) -> Integers:
    """Return [W]: bytes of instructions over the busiest channel.

    Every channel of a pod gets the instructions for all of the pod's edges.
    """
    config, pods = traffic.config, traffic.pods
    edges = traffic.by_channel(traffic.counts.edges)
    of_pod: Integers = sums(edges, config.topology.channels // pods.channels).max(axis=1)
    receivers = 1 if pods.inside_dimm else pods.in_channel
    return of_pod * config.host.instruction_bytes * receivers


def _prior_energy_nj(
    traffic: LayerTraffic, memory: MemoryTimes, moved: dict[str, int], time_ns: float
) -> dict[str, float]:
    """Return the energy by consumer: features use the DRAM-path, everything else uses the channels."""
    config, bursts, burst = traffic.config, traffic.slice_bursts, traffic.config.burst_bytes
    adjacency, results = moved["adjacency_read"] / burst, moved["results_write"] / burst
    features = traffic.feature_bursts.sum(axis=0)
    opened = sum(features[r] * read_cost(traffic, memory, int(n)).activations for r, n in enumerate(bursts))
    opened += adjacency * memory.stream(on_bus=True).activations
    opened += results * memory.random(int(bursts.max()), "write", on_bus=True).activations
    commands = energy.Commands(adjacency + float(features.sum()), results, float(opened))
    over_channel = sum(size for what, size in moved.items() if what != "feature_read")
    local = float(features.sum()) * burst
    products = float(traffic.workload.num_edges) * traffic.width
    buffered = moved["feature_read"] + moved["instructions"] + moved["outputs_read"]
    return {
        **energy.dram_nj(commands, memory, config.topology.ranks, time_ns),
        **energy.path_nj(config.energy, over_channel, local),
        **energy.unit_nj(config.energy, products, buffered),
    }
