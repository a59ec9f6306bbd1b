"""A layer's durations once more, target by target and edge by edge: the oracle of bytes, times and energy.

Nothing of the model is used but the machine's parameters and the DRAM's cost of a burst, which has an oracle
of its own. Every figure is one loop and one formula, as the documents have it.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import numpy as np

from onehop.machines.dram import Access, Memory


@dataclass(frozen=True)
class Layer:
    """What a layer is asked for.

    Attributes:
        config: The machine.
        graph: The graph.
        order: Targets in order of processing.
        listed: Whether that order is a tile list's.
        pod: Ranks of a pod.
        width: Columns.
        tile: Targets of a tile, before it is cut to the buffer.
        broadcast: Whether bundles are broadcast.
        final_pod: Ranks of a pod in the mapping of final vectors; None means as above.
        final_width: Their columns; None means as above.
        work_ns: The host's work on a target.
    """

    config: object
    graph: object
    order: list
    listed: bool
    pod: int
    width: int
    tile: int
    broadcast: bool
    final_pod: int | None = None
    final_width: int | None = None
    work_ns: float = 0.0

    @cached_property
    def topology(self):
        return self.config.topology

    @cached_property
    def ranks(self):
        return self.topology.channels * self.topology.dimms_per_channel * self.topology.ranks_per_dimm

    @cached_property
    def per_channel(self):
        return self.topology.dimms_per_channel * self.topology.ranks_per_dimm

    def byte_ns(self, op):
        """A byte over a channel: as in a stream over the bus, or at the given bandwidth."""
        if self.config.host.channel_gbps:
            return 1 / self.config.host.channel_gbps
        return self.cost("sequential", op=op, on_bus=True).ns / 64

    def owner(self, node):
        return node // self.topology.node_block % self.ranks

    def sources(self, target):
        rowptr, col = self.lists
        return col[rowptr[target] : rowptr[target + 1]]

    @cached_property
    def lists(self):
        return self.graph.rowptr.tolist(), self.graph.col.tolist()

    @cached_property
    def columns(self):
        """Columns of each place in a pod."""
        return [self.width // self.pod + (place < self.width % self.pod) for place in range(self.pod)]

    @cached_property
    def wrote(self):
        """Ranks of a pod of final vectors, and their columns."""
        return self.final_pod or self.pod, self.final_width or self.width

    def final_bytes(self, rank):
        pod, width = self.wrote
        return 4 * (width // pod + (rank % pod < width % pod))

    def final_bursts(self, rank):
        return math.ceil(self.final_bytes(rank) / 64)

    def slice_bytes(self, rank):
        return 4 * self.columns[rank % self.pod]

    def bursts(self, rank):
        return math.ceil(self.slice_bytes(rank) / 64)

    @cached_property
    def groups(self):
        """Windows of tiles of targets."""
        room = int(self.config.module.buffer_kib * 1024) // max(4 * self.columns[0], 1)
        tile = min(self.tile, room)
        block = tile * max(1, min(room, 128) // tile)
        window = room // block * block
        found = []
        for first in range(0, len(self.order), window):
            targets = self.order[first : first + window]
            found.append([targets[at : at + tile] for at in range(0, len(targets), tile)])
        return found

    @cached_property
    def nodes_of_rank(self):
        found = [0] * self.ranks
        for node in range(self.graph.num_src):
            found[self.owner(node)] += 1
        return found

    @cached_property
    def fill_ns(self):
        timing = self.config.dram.device().timing
        return (timing.rcd + timing.cl + timing.bl) * timing.clock_ps / 1000

    @cached_property
    def over_host(self):
        inside = self.pod <= self.topology.ranks_per_dimm
        return self.pod > 1 and not (inside and self.broadcast)

    def cost(self, pattern, bursts=1, op="read", places=None, on_bus=False):
        """Nanoseconds and row openings of a burst."""
        dram = self.config.dram
        span = None if places is None else max(places, 1) * max(bursts, 1) * 64
        access = Access(pattern, max(bursts, 1) * 64, op, span if pattern == "random" else None)
        memory = Memory(dram.device(), self.per_channel if on_bus else 1, dram.layout)
        found = memory.cost(access, dram.level)
        return SimpleNamespace(
            ns=found.cycles * dram.device().timing.clock_ps / 1000, opened=found.activations
        )

    @cached_property
    def adjacency_cost(self):
        """Parts of a rank's adjacency one by one, among those of the rank that has most; or in order."""
        of_ranks = [0] * self.ranks
        for source in self.lists[1]:
            of_ranks[self.owner(source)] += 1
        places = math.ceil(max(of_ranks) * self.config.module.adjacency_entry_bytes / 64)
        return self.cost("random", places=places) if self.listed else self.cost("sequential")

    @cached_property
    def pointer_cost(self):
        """Row pointers, one more than nodes, one by one or in order."""
        places = math.ceil((self.graph.num_src + 1) * self.config.module.row_pointer_bytes / 64)
        return self.cost("random", places=places) if self.listed else self.cost("sequential")

    def read_cost(self, rank):
        return self.cost("random", self.bursts(rank), places=max(self.nodes_of_rank))

    def write_cost(self, rank):
        if not self.listed:
            return self.cost("sequential", op="write")
        return self.cost("random", self.final_bursts(rank), "write", max(self.nodes_of_rank) * self.wrote[0])


@dataclass
class Counted:
    """What a window moves, by rank."""

    targets: int
    edges: list
    reads: list
    adjacency_bursts: list
    pointer_bursts: int
    list_bytes: int
    touched: list
    owned: list


def count(layer, window, tiled=True):
    """One window of :attr:`Layer.groups`."""
    ranks, pod, module = layer.ranks, layer.pod, layer.config.module
    final_pod = layer.wrote[0]
    targets = sum(len(tile) for tile in window)
    edges, reads, bursts, touched, owned = ([0] * ranks for _ in range(5))
    for tile in window:
        seen = set()
        for target in tile:
            mine = [0] * ranks
            for source in layer.sources(target):
                mine[layer.owner(source)] += 1
                if source not in seen or not tiled:
                    seen.add(source)
                    reads[layer.owner(source)] += 1
            for rank in range(ranks):
                edges[rank] += mine[rank]
                bursts[rank] += math.ceil(mine[rank] * module.adjacency_entry_bytes / 64)
                first = rank // pod * pod
                touched[rank] += any(mine[first : first + pod])
                owned[rank] += layer.owner(target) // final_pod == rank // final_pod
    if not layer.listed:
        bursts = [math.ceil(n * module.adjacency_entry_bytes / 64) for n in edges]
    pointers, each = math.ceil(targets * module.row_pointer_bytes / 64), module.row_pointer_bytes
    if layer.listed:
        pointers = sum(
            len({at * each + byte >> 6 for at in tile for byte in range(2 * each)}) for tile in window
        )
    return Counted(
        targets, edges, reads, bursts, pointers, 4 * targets if layer.listed else 0, touched, owned
    )


def durations(layer, tiled=True, listing=None):
    """The durations of all windows, under the names of the model's own.

    ``listing`` has those of :func:`tests.machines.ndp.oracle_others.retiled` where tile lists are made.
    """
    config, ranks, pod = layer.config, layer.ranks, layer.pod
    module, control, host = config.module, config.control, config.host
    span = max(1, pod // layer.per_channel)
    lines = {name: [] for name in WINDOWED}
    for window in layer.groups:
        found = count(layer, window, tiled)
        adjacency, write_back, bundle_out, bundle_in = [], [], [], []
        for rank in range(ranks):
            ns = found.adjacency_bursts[rank] * layer.adjacency_cost.ns
            ns += found.pointer_bursts * layer.pointer_cost.ns
            ns += found.list_bytes / 64 * layer.cost("sequential", op="write" if listing else "read").ns
            if found.adjacency_bursts[rank] or found.pointer_bursts:
                ns += layer.fill_ns
            adjacency.append(ns)
            written = found.owned[rank] * layer.final_bursts(rank)
            write_back.append(written * layer.write_cost(rank).ns + (layer.fill_ns if written else 0))
            size = found.edges[rank] * module.adjacency_entry_bytes if layer.over_host else 0
            copies = 1 if layer.broadcast else pod // span
            bundle_out.append(size * layer.byte_ns("read") + control.access_ns if size else 0)
            bundle_in.append((size * layer.byte_ns("write") + control.access_ns) * copies if size else 0)
        outputs, finals, added = [], [], 0
        for channel in range(config.topology.channels):
            q = z = 0
            for rank in range(channel * layer.per_channel, (channel + 1) * layer.per_channel):
                read = found.touched[rank] * layer.slice_bytes(rank)
                for size, is_output in ((read, True), (found.owned[rank] * layer.final_bytes(rank), False)):
                    per_byte = layer.byte_ns("read" if is_output else "write")
                    ns = size * per_byte + control.access_ns if size else 0
                    q, z = (q + ns, z) if is_output else (q, z + ns)
                    added += size if is_output else 0
            outputs.append(q)
            finals.append(z)
        fullest = max(found.edges) * module.adjacency_entry_bytes
        values = (
            max(1, math.ceil(fullest / int(module.buffer_kib * 1024))),
            adjacency,
            found.reads,
            found.edges,
            bundle_out,
            bundle_in,
            outputs,
            added / host.reduce_gbps + found.targets * layer.work_ns,
            finals,
            write_back,
        )
        for name, value in zip(WINDOWED, values, strict=True):
            lines[name].append(value)
    return SimpleNamespace(
        pod=pod,
        transfer="none" if pod == 1 else "host" if layer.over_host else "link",
        lag=1 if pod > 1 else module.output_buffers - 1,
        fill_ns=layer.fill_ns,
        poll_ns=control.poll_ns,
        again_ns=control.access_ns * layer.per_channel,
        read_ns=np.array([layer.bursts(rank) * layer.read_cost(rank).ns for rank in range(ranks)]),
        unit_ns=np.array(
            [
                math.ceil(layer.columns[rank % pod] / module.lanes) * 1000 / module.clock_mhz
                for rank in range(ranks)
            ]
        ),
        listing=listing and SimpleNamespace(**{each: np.array(getattr(listing, each)) for each in LISTING}),
        **{name: np.array(values) for name, values in lines.items()},
    )


WINDOWED = (
    "pieces",
    "adjacency",
    "reads",
    "edges",
    "bundle_out",
    "bundle_in",
    "outputs",
    "reduce",
    "finals",
    "write_back",
)


LISTING = ("scan", "lists", "merge", "tiles")


def control_ns(layer):
    """Start, last status, and the write-back of dirty lines of the features that the host has made."""
    control = layer.config.control
    dirty = min(layer.graph.num_src * layer.width * 4, control.flush_mib * 1024 * 1024)
    flush_ns = dirty * layer.byte_ns("write") / layer.config.topology.channels
    return control.start_ns + control.poll_ns + flush_ns


def energy(layer, time_ns, extra=None, tiled=True):
    """Nanojoules by consumer; ``extra`` is re-tiling's, of :mod:`tests.machines.ndp.oracle_others`."""
    module = layer.config.module
    reads = writes = opened = channel_bytes = linked = 0
    span = max(1, layer.pod // layer.per_channel)
    for window in layer.groups:
        found = count(layer, window, tiled)
        for rank in range(layer.ranks):
            first = rank // layer.pod * layer.pod
            features = sum(found.reads[first : first + layer.pod]) * layer.bursts(rank)
            written = found.owned[rank] * layer.final_bursts(rank)
            lists = 0 if extra else found.list_bytes / 64
            reads += found.adjacency_bursts[rank] + found.pointer_bursts + lists + features
            writes += written
            opened += found.adjacency_bursts[rank] * layer.adjacency_cost.opened
            opened += found.pointer_bursts * layer.pointer_cost.opened
            opened += lists * layer.cost("sequential").opened
            opened += features * layer.read_cost(rank).opened + written * layer.write_cost(rank).opened
            bundle = found.edges[rank] * module.adjacency_entry_bytes
            if layer.over_host:
                copies = 1 if layer.broadcast else layer.pod // span
                channel_bytes += bundle + bundle * copies * span
            elif layer.pod > 1:
                linked += bundle * (layer.pod - 1)
            channel_bytes += found.touched[rank] * layer.slice_bytes(rank)
            channel_bytes += found.owned[rank] * layer.final_bytes(rank)
    if extra is not None:
        reads, writes, opened = reads + extra.reads, writes + extra.writes, opened + extra.opened
        channel_bytes += extra.channel_bytes
    local = (reads + writes) * 64
    return {
        **dram_energy(layer, reads, writes, opened, time_ns),
        **unit_energy(layer, channel_bytes, local, buffered=channel_bytes + linked + local),
    }


def dram_energy(layer, reads, writes, opened, time_ns):
    """Nanojoules of bursts, of opened rows, and of the time that all ranks are powered."""
    device = layer.config.dram.device()
    refreshes = time_ns / (device.timing.refi * device.timing.clock_ps / 1000) * layer.ranks
    return {
        "dram_activate": opened * device.energy.activate_nj,
        "dram_read": reads * device.energy.read_nj,
        "dram_write": writes * device.energy.write_nj,
        "dram_refresh": refreshes * device.energy.refresh_nj,
        "dram_standby": time_ns * layer.ranks * device.energy.standby_mw / 1000,
    }


def host_path(layer, channel_bytes):
    """Nanojoules of bytes over channels."""
    return channel_bytes * 8 * layer.config.energy.channel_pj_per_bit / 1000


def unit_energy(layer, channel_bytes, local_bytes, buffered):
    """Nanojoules of both paths, of a product an edge and column, and of buffers: its output, and all else."""
    figures, products = layer.config.energy, layer.graph.num_edges * layer.width
    return {
        "host_path": host_path(layer, channel_bytes),
        "dram_path": local_bytes * 8 * figures.local_pj_per_bit / 1000,
        "units": products * (figures.add_pj + figures.multiply_pj) / 1000,
        "buffers": (buffered + products * 2 * 4) * figures.buffer_pj_per_byte / 1000,
    }
