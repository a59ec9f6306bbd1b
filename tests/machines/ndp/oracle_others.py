"""Re-tiling, the host alone and prior machines once more, in plain loops."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

from tests.machines.ndp.naive_order import naive_scans
from tests.machines.ndp.oracle import count, dram_energy, host_path, unit_energy


@dataclass
class Retiled:
    """Re-tiling of a graph; times of each window's lists."""

    scan: list
    lists: list
    merge: list
    tiles: list
    scan_ns: float
    flags_ns: float
    store_ns: float
    modules_ns: float
    host_ns: float
    reads: float
    writes: float
    opened: float
    channel_bytes: float


def retiled(layer, batch, retile):
    """Batch by batch: rows scanned, a flag an edge and a node; lists out, merged, tile lists in."""
    config, ranks, control = layer.config, layer.ranks, layer.config.control
    module, channels, nodes = config.module, config.topology.channels, len(layer.order)
    places = math.ceil(max(layer.nodes_of_rank) / 8 / 64)
    stream, stored = layer.cost("sequential"), layer.cost("sequential", op="write")
    tested, set_ = layer.cost("random", places=places), layer.cost("random", op="write", places=places)
    found = Retiled([], [], [], [], *[0.0] * 9)
    by_rank = [SimpleNamespace(scan=0.0, flags=0.0, whole=0.0) for _ in range(ranks)]
    by_channel = [0.0] * channels
    scans, there = naive_scans(layer.graph, layer.owner, retile, batch, ranks), 0
    for number in range(len(layer.groups)):
        needed = sum(len(tile) for group in layer.groups[: number + 1] for tile in group)
        scan, lists, merge, tiles = [0.0] * ranks, [0.0] * channels, 0.0, 0.0
        while there < needed:
            one, listed = scans[there // batch], layer.order[there : there + batch]
            there += len(listed)
            for rank in range(ranks):
                own = sum(layer.owner(node) == rank for node in listed)
                bursts = (one.edges[rank] * module.adjacency_entry_bytes) / 64
                bursts += one.rows * module.row_pointer_bytes / 64
                tests, sets = (one.edges[rank], own) if module.flags_in_dram else (0, 0)
                flags = tests * tested.ns + sets * set_.ns
                scan[rank] += bursts * stream.ns + flags
                by_rank[rank].scan += bursts * stream.ns
                by_rank[rank].flags += flags
                size = own * 4 + (one.rows if retile == "rows" else 0)
                lists[rank // layer.per_channel] += size * layer.byte_ns("read") + control.access_ns
                found.channel_bytes += size
                found.reads += bursts + tests
                found.writes += sets
                found.opened += bursts * stream.opened + tests * tested.opened + sets * set_.opened
            lists = [ns + control.poll_ns for ns in lists]
            merge += len(listed) / config.host.merge_nodes_per_us * 1000
            tiles += len(listed) * 4 * layer.byte_ns("write") + control.access_ns
            found.channel_bytes += len(listed) * 4 * channels
        scan = [ns + layer.fill_ns if ns else 0.0 for ns in scan]
        for rank in range(ranks):
            by_rank[rank].whole += scan[rank]
        by_channel = [before + ns + tiles for before, ns in zip(by_channel, lists, strict=True)]
        found.host_ns += merge
        for name, value in (("scan", scan), ("lists", lists), ("merge", merge), ("tiles", tiles)):
            getattr(found, name).append(value)
    found.store_ns = nodes * 4 / 64 * stored.ns
    found.scan_ns = max(one.scan for one in by_rank)
    found.flags_ns = max(one.flags for one in by_rank)
    found.modules_ns = max(one.whole for one in by_rank) + found.store_ns
    found.host_ns += max(by_channel)
    found.writes += nodes * 4 / 64 * ranks
    found.opened += nodes * 4 / 64 * ranks * stored.opened
    return found


def alone(layer):
    """The host: adjacency with row pointers, a vector an edge, results; spread over the channels."""
    module, channels, graph = layer.config.module, layer.config.topology.channels, layer.graph
    bursts = math.ceil(4 * layer.width / 64)
    structure = math.ceil(
        (graph.num_edges * module.adjacency_entry_bytes + graph.num_dst * module.row_pointer_bytes) / 64
    )
    stream, out = layer.cost("sequential", on_bus=True), layer.cost("sequential", op="write", on_bus=True)
    vectors = layer.cost("random", bursts, places=math.ceil(graph.num_src / channels), on_bus=True)
    times = SimpleNamespace(
        adjacency_ns=structure * stream.ns / channels,
        features_ns=graph.num_edges * bursts * vectors.ns / channels,
        write_ns=graph.num_dst * bursts * out.ns / channels,
    )
    read, written = structure + graph.num_edges * bursts, graph.num_dst * bursts
    opened = structure * stream.opened + graph.num_edges * bursts * vectors.opened + written * out.opened
    times.bytes = {
        "adjacency_read": structure * 64,
        "feature_read": graph.num_edges * bursts * 64,
        "feature_useful": graph.num_edges * layer.width * 4,
        "results_write": written * 64,
    }
    time_ns = times.adjacency_ns + times.features_ns + times.write_ns
    times.energy_nj = {
        **dram_energy(layer, read, written, opened, time_ns),
        "host_path": host_path(layer, (read + written) * 64),
    }
    return times


def prior(layer):
    """A prior machine: ``layer`` in order of numbers, without broadcasting."""
    layer = replace(layer, broadcast=False)
    config, pod = layer.config, layer.pod
    module, host, control, channels = config.module, config.host, config.control, config.topology.channels
    span = max(1, pod // layer.per_channel)
    receivers = 1 if pod <= config.topology.ranks_per_dimm else pod // span
    steps = {"pre": 0.0, "features": 0.0, "post": 0.0}
    overlapped = opened = reads = writes = structure_bursts = instructions = outputs_bytes = 0
    for window in layer.groups:
        found = count(layer, window)
        structure = sum(found.edges) * module.adjacency_entry_bytes
        structure += found.targets * module.row_pointer_bytes
        busiest_pods = 0
        for channel in range(0, channels, span):
            ranks = range(channel * layer.per_channel, (channel + span) * layer.per_channel)
            busiest_pods = max(busiest_pods, sum(found.edges[rank] for rank in ranks))
        told = busiest_pods * host.instruction_bytes * receivers
        pre = structure / channels * layer.byte_ns("read") + told * layer.byte_ns("write") + control.poll_ns
        work = 0.0
        for rank in range(layer.ranks):
            first = rank // pod * pod
            ns = sum(found.reads[first : first + pod]) * layer.bursts(rank) * layer.read_cost(rank).ns
            lanes = math.ceil(layer.columns[rank % pod] / module.lanes) * 1000 / module.clock_mhz
            work = max(work, ns, sum(found.edges[first : first + pod]) * lanes)
            reads += sum(found.reads[first : first + pod]) * layer.bursts(rank)
            opened += (
                sum(found.reads[first : first + pod]) * layer.bursts(rank) * layer.read_cost(rank).opened
            )
        slowest_q = slowest_z = added = 0.0
        in_channel = max(layer.nodes_of_rank) * pod * layer.per_channel
        for channel in range(channels):
            q = z = 0.0
            for rank in range(channel * layer.per_channel, (channel + 1) * layer.per_channel):
                size = found.touched[rank] * layer.slice_bytes(rank)
                q += size * layer.byte_ns("read") + (control.access_ns if size else 0)
                written = found.owned[rank] * layer.bursts(rank)
                z += written * layer.cost("random", layer.bursts(rank), "write", in_channel, True).ns
                added += size
                writes += written
            slowest_q, slowest_z = max(slowest_q, q), max(slowest_z, z)
        post = max(slowest_q, added / host.reduce_gbps) + slowest_z + control.poll_ns
        work += layer.fill_ns
        for name, ns in (("pre", pre), ("features", work), ("post", post)):
            steps[name] += ns
        overlapped += max(pre, work, post)
        structure_bursts += math.ceil(structure / 64)
        instructions += told * channels
        outputs_bytes += added
    moved = {
        "adjacency_read": structure_bursts * 64,
        "instructions": instructions,
        "feature_read": reads * 64,
        "outputs_read": outputs_bytes,
        "results_write": writes * 64,
    }
    widest = max(layer.bursts(rank) for rank in range(layer.ranks))
    opened += structure_bursts * layer.cost("sequential", on_bus=True).opened
    opened += writes * layer.cost("random", widest, "write", None, True).opened
    return SimpleNamespace(
        steps_ns=steps,
        serial_ns=sum(steps.values()),
        overlapped_ns=overlapped,
        bytes=moved,
        energy_nj=_prior_energy(layer, moved, opened, sum(steps.values())),
    )


def _prior_energy(layer, moved, opened, time_ns):
    channel = moved["adjacency_read"] + moved["instructions"] + moved["outputs_read"] + moved["results_write"]
    buffered = moved["feature_read"] + moved["instructions"] + moved["outputs_read"]
    read = (moved["adjacency_read"] + moved["feature_read"]) / 64
    return {
        **dram_energy(layer, read, moved["results_write"] / 64, opened, time_ns),
        **unit_energy(layer, channel, moved["feature_read"], buffered),
    }
