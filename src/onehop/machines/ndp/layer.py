"""One layer under one mapping: its time by phase, and all other figures of the report."""

from dataclasses import dataclass

import numpy as np

from onehop.errors import ArgumentError
from onehop.machines.ndp import energy
from onehop.machines.ndp.bounds import Paths, paths
from onehop.machines.ndp.case import LayerCase
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.durations import (
    Reals,
    adjacency_cost,
    list_cost,
    pointer_cost,
    read_cost,
    times_of,
    with_stored_list,
    write_cost,
)
from onehop.machines.ndp.mapping import ELEMENT_BYTES, Pods
from onehop.machines.ndp.memory_times import MemoryTimes
from onehop.machines.ndp.retiling import Retiling, RetilingCost
from onehop.machines.ndp.traffic import LayerTraffic, groups, uses_channels
from onehop.machines.ndp.windows import Schedule, run
from onehop.plans.ndp import BETWEEN_BUNDLES, HOST_ORDERS, NdpPlan


@dataclass(frozen=True)
class LayerRun:
    """Result of a layer.

    Attributes:
        workload: The graph on the ranks.
        traffic: The layer's bytes, window by window.
        memory: The DRAM's times.
        host_order: The host's order.
        windows_ns: The windows' time in every host order that the plan allows.
        schedule: The windows' schedule in the chosen host order.
        paths: Work of both paths.
        control_ns: Time of the flush, the start and the last status.
        retiling: Cost of re-tiling, in the layer that does it; None in other layers.
    """

    workload: RankWorkload
    traffic: LayerTraffic
    memory: MemoryTimes
    host_order: str
    windows_ns: dict[str, float]
    schedule: Schedule
    paths: Paths
    control_ns: float
    retiling: RetilingCost | None

    @property
    def mapping(self) -> str:
        """The mapping's name."""
        return self.traffic.pods.name

    @property
    def retiling_ns(self) -> float:
        """Time that re-tiling adds; 0 except in the layer that does it."""
        return 0.0 if self.retiling is None else self.retiling.time_ns

    @property
    def time_ns(self) -> float:
        """Total time."""
        return self.control_ns + self.schedule.total_ns

    @property
    def bound_ns(self) -> float:
        """Lower bound of the time, in any order: control time plus the busier path's time."""
        return self.control_ns + self.paths.bound_ns

    @property
    def hidden_share(self) -> float:
        """Share of the shorter path's work that the longer one hides; see :meth:`.Paths.hidden_share`."""
        return self.paths.hidden_share(self.schedule.total_ns)

    def orders_ns(self) -> dict[str, float]:
        """Return the total time in every order that the plan allows."""
        return {order: self.control_ns + ns for order, ns in self.windows_ns.items()}

    def phases_ns(self) -> dict[str, float]:
        """Return the time that each phase adds; the phases sum to :attr:`time_ns`.

        The windows' time consists of a rank's mean busy time, by phase; then the extra time of each window's
        busiest rank, unless other ranks work ahead during that time; then the rest, in which ranks wait for
        the Host-path.
        """
        mean = self.schedule.rank_busy_ns.mean(axis=0)
        busy = float(mean[:4].sum())
        waits = max(0.0, self.schedule.total_ns - busy)
        imbalance = min(waits, float(self.schedule.busy_ns[:, 1].sum()) - busy)
        return {
            "control": self.control_ns,
            "re-tiling": float(mean[3]),
            "adjacency": float(mean[0]),
            "features": float(mean[1]),
            "write-back": float(mean[2]),
            "imbalance": imbalance,
            "host": waits - imbalance,
        }

    def bytes(self) -> dict[str, int]:
        """Return the bytes moved, by kind."""
        return {**self.traffic.totals(), **({} if self.retiling is None else self.retiling.bytes)}

    def commands_by_rank(self) -> tuple[Reals, Reals, Reals]:
        """Return the bursts read, bursts written and rows activated, [R] each, without re-tiling."""
        traffic, memory = self.traffic, self.memory
        adjacency, features, writes = (
            each.sum(axis=0)
            for each in (traffic.adjacency_bursts, traffic.feature_bursts, traffic.write_bursts)
        )
        lists = 0.0 if traffic.relists else float(traffic.list_bytes.sum()) / traffic.config.burst_bytes
        bursts = traffic.slice_bursts
        of_read = np.array([read_cost(traffic, memory, int(n)).activations for n in bursts])
        written = traffic.final_slice_bursts
        of_write = np.array([write_cost(traffic, memory, int(n)).activations for n in written])
        of_adjacency = adjacency_cost(traffic, memory).activations
        pointers = float(traffic.pointer_bursts.sum())
        opened = features * of_read + writes * of_write + adjacency * of_adjacency
        opened += pointers * pointer_cost(traffic, memory).activations
        opened += lists * list_cost(traffic, memory).activations
        read = np.asarray(adjacency + pointers + lists + features, dtype=np.float64)
        return read, writes.astype(np.float64), np.asarray(opened, dtype=np.float64)

    def commands(self) -> energy.Commands:
        """Return the counts of DRAM commands over all ranks."""
        read, written, opened = (float(each.sum()) for each in self.commands_by_rank())
        if self.retiling is not None:
            read += self.retiling.bursts_read
            written += self.retiling.bursts_written
            opened += self.retiling.activations
        return energy.Commands(read, written, opened)

    def energy_nj(self) -> dict[str, float]:
        """Return the energy by consumer."""
        config, moved, commands = self.traffic.config, self.bytes(), self.commands()
        over_channel = sum(
            moved.get(key, 0)
            for key in (
                "bundle_read",
                "bundle_write",
                "outputs_read",
                "finals_write",
                "retile_lists",
                "retile_tile_lists",
            )
        )
        bursts = commands.reads + commands.writes
        products = float(self.workload.num_edges) * self.traffic.width
        return {
            **energy.dram_nj(commands, self.memory, config.topology.ranks, self.time_ns),
            **energy.path_nj(config.energy, over_channel, bursts * config.burst_bytes),
            **energy.unit_nj(
                config.energy, products, over_channel + moved["bundle_in_dimm"] + bursts * config.burst_bytes
            ),
        }

    def imbalance(self) -> Reals:
        """Return [W]: λ, the busiest rank's feature reads divided by the mean, per window that has reads."""
        bursts = self.traffic.feature_bursts
        mean = bursts.mean(axis=1)
        worked = mean > 0
        ratios: Reals = bursts.max(axis=1)[worked] / mean[worked]
        return ratios


def simulate(case: LayerCase, workload: RankWorkload, pods: Pods) -> LayerRun:
    """Run one layer with the plan's order of targets, and the plan's host order or the fastest one.

    Raises:
        ArgumentError: A buffer cannot hold one output slice, or the mapping does not support the plan's host
            order.
    """
    config, memory = case.config, case.memory
    traffic, channels = case.traffic(workload, pods), config.topology.channels
    retiling, cost = retiling_of(case, workload, pods), None
    times = times_of(traffic, memory, retiling)
    schedules = {order: run(times, channels, order) for order in host_orders(pods, case.plan)}
    windows_ns = {order: schedule.total_ns for order, schedule in schedules.items()}
    host_order = min(windows_ns, key=lambda order: windows_ns[order])
    schedule = run(times, channels, host_order, case.record) if case.record else schedules[host_order]
    if retiling is not None:
        stored = run(with_stored_list(times, traffic, memory), channels, host_order)
        cost = retiling.cost(schedule.total_ns - stored.total_ns)
    return LayerRun(
        workload,
        traffic,
        memory,
        host_order,
        windows_ns,
        schedule,
        paths(times, channels),
        control_ns(case, workload.graph.num_src),
        cost,
    )


def retiling_of(case: LayerCase, workload: RankWorkload, pods: Pods) -> Retiling | None:
    """Return the re-tiling that a layer does; None if it does none.

    Raises:
        ArgumentError: A buffer cannot hold one output slice.
    """
    batch = case.batched(pods).batch
    if not case.relists or batch is None:
        return None
    window = groups(case.config, pods, case.width, case.plan.tile).window
    return Retiling.of(case.config, case.memory, workload, window, batch)


def control_ns(case: LayerCase, num_src: int) -> float:
    """Return the time to flush dirty vectors from the host's caches, start the modules and read a status."""
    control = case.config.control
    dirty = min(num_src * case.width * ELEMENT_BYTES, control.flush_mib * 2**20)
    flush_ns = dirty / case.config.topology.channels * case.memory.byte_ns("write")
    return control.start_ns + control.poll_ns + flush_ns


def host_orders(pods: Pods, plan: NdpPlan) -> list[str]:
    """Return the host orders to try: the plan's order, or all orders that the mapping supports.

    Raises:
        ArgumentError: The mapping does not support the plan's order.
    """
    over_host, order = uses_channels(pods, plan.broadcast), plan.host_order
    possible = [each for each in HOST_ORDERS if each not in BETWEEN_BUNDLES or over_host]
    if order == "adaptive":
        return possible
    if order not in possible:
        raise ArgumentError(
            f"plan: host_order {order!r} puts outputs between bundles, and with mapping "
            f"{pods.name!r} no bundle uses the channels; choose {', '.join(possible)} or adaptive, "
            "or pods of several DIMMs."
        )
    return [order]
