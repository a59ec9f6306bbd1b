"""Cost of re-tiling, in the first layer only: scanning, flags, lists to the host, tile lists back."""

from dataclasses import dataclass

from onehop.machines.ndp.config import NdpConfig
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.memory_times import MemoryTimes
from onehop.machines.ndp.traffic import NODE_BYTES

# A unit's record of the number of nodes of a row, by which lists are merged row by row. An assumption.
_ROW_NOTE_BYTES = 1


@dataclass(frozen=True, slots=True)
class RetilingCost:
    """One re-tiling of a graph.

    Attributes:
        time_ns: Total time. Batches are a pipeline of two steps, modules and host: the longer step's time,
            and the shorter one's for one batch.
        modules_ns: Time of the slowest module: scanning its adjacency, testing flags, writing the tile list.
        host_ns: Reading lists, merging them, broadcasting tile lists.
        bytes: Bytes, by kind.
        bursts_read: DRAM bursts, over all ranks.
        bursts_written: DRAM bursts, over all ranks.
        activations: Row activations, over all ranks.
    """

    time_ns: float
    modules_ns: float
    host_ns: float
    bytes: dict[str, int]
    bursts_read: float
    bursts_written: float
    activations: float


def cost(config: NdpConfig, workload: RankWorkload, memory: MemoryTimes) -> RetilingCost:
    """Cost of re-tiling the graph; zero if its targets are in order of their numbers.

    Args:
        config: The machine.
        workload: The graph on its ranks.
        memory: The DRAM's times.
    """
    topology = config.topology
    if not workload.reorders or workload.graph.num_dst == 0:
        return RetilingCost(0.0, 0.0, 0.0, {}, 0.0, 0.0, 0.0)
    nodes, burst = workload.graph.num_dst, config.burst_bytes
    nodes_of_rank, edges_of_rank = workload.nodes_of_rank, workload.edges_of_rank

    stream, stream_out = memory.stream(), memory.stream("write")
    # A bit for each node that is assigned to the rank.
    flags = -(-int(nodes_of_rank.max()) // (8 * burst))
    flag, flag_out = memory.random(1, runs=flags), memory.random(1, "write", runs=flags)
    pointers = nodes * config.module.row_pointer_bytes
    scanned = (edges_of_rank * config.module.adjacency_entry_bytes + pointers) / burst
    flags_read = edges_of_rank * (1.0 if config.module.flags_in_dram else 0.0)
    flags_written = nodes_of_rank * (1.0 if config.module.flags_in_dram else 0.0)
    stored = nodes * NODE_BYTES / burst
    per_rank = (
        scanned * stream.ns + flags_read * flag.ns + flags_written * flag_out.ns + stored * stream_out.ns
    )
    modules = float(per_rank.max())

    notes = nodes * _ROW_NOTE_BYTES * topology.ranks if workload.retile == "rows" else 0
    lists, tiles = nodes * NODE_BYTES, nodes * NODE_BYTES * topology.channels
    out_ns = (lists + notes) / topology.channels / config.channel_gbps
    host = out_ns + nodes / config.host.merge_nodes_per_us * 1000.0 + nodes * NODE_BYTES / config.channel_gbps
    batches = -(-nodes // workload.batch)
    # Lists are read from every module; the tile list is one broadcast a channel.
    host += batches * (config.control.poll_ns + config.control.access_ns * (topology.ranks_per_channel + 1))
    return RetilingCost(
        time_ns=max(modules, host) + min(modules, host) / batches,
        modules_ns=modules,
        host_ns=host,
        bytes={
            "retile_scan": round(float(scanned.sum()) * burst),
            "retile_flags": round(float((flags_read + flags_written).sum()) * burst),
            "retile_lists": lists + notes,
            "retile_tile_lists": tiles,
            "retile_stored": nodes * NODE_BYTES * topology.ranks,
        },
        bursts_read=float((scanned + flags_read).sum()),
        bursts_written=float(flags_written.sum() + stored * topology.ranks),
        activations=float(
            scanned.sum() * stream.activations
            + flags_read.sum() * flag.activations
            + flags_written.sum() * flag_out.activations
            + stored * topology.ranks * stream_out.activations
        ),
    )
