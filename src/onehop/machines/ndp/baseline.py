"""The baseline of the machine: aggregation on the host alone."""

from dataclasses import dataclass

from onehop.machines.ndp import energy
from onehop.machines.ndp.case import LayerCase
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.mapping import ELEMENT_BYTES


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """The host's own aggregation: each channel reads one rank at a time, and channels work in parallel.

    Attributes:
        adjacency_ns: Time of reading the adjacency and its row pointers.
        features_ns: Time of reading feature vectors.
        write_ns: Time of writing results.
        reads: Feature vectors read from DRAM.
        hits: Feature vectors found in the host's cache, if it has one.
        bytes: Bytes over the channels, by kind.
        energy_nj: Energy of DRAM and channels; the energy of the host's cores is not known.
    """

    adjacency_ns: float
    features_ns: float
    write_ns: float
    reads: int
    hits: int
    bytes: dict[str, int]
    energy_nj: dict[str, float]

    @property
    def time_ns(self) -> float:
        """Total time."""
        return self.adjacency_ns + self.features_ns + self.write_ns


def baseline(case: LayerCase, workload: RankWorkload) -> BaselineRun:
    """Simulate the host alone on a graph whose targets are in node order; see :func:`host_alone`."""
    graph, host = workload.graph, case.config.host
    entries = int(host.llc_mib * 2**20) // (case.width * ELEMENT_BYTES)
    read = workload.cache_misses(entries, min(entries, host.llc_ways)) if entries else graph.num_edges
    return host_alone(case, graph.num_src, graph.num_dst, graph.num_edges, hits=graph.num_edges - read)


def host_alone(case: LayerCase, num_src: int, num_dst: int, num_edges: int, hits: int = 0) -> BaselineRun:
    """Simulate the host alone, limited by its channels, on a graph of the given size.

    Edges are spread evenly over the channels, and the cores keep up with the memory; this is the best that a
    host can do. ``hits`` feature vectors are found in a cache.
    """
    config, memory = case.config, case.memory
    channels, module = config.topology.channels, config.module
    vector, burst = case.width * ELEMENT_BYTES, config.burst_bytes
    bursts = -(-vector // burst)
    structure = num_edges * module.adjacency_entry_bytes + num_dst * module.row_pointer_bytes
    adjacency, read = -(-structure // burst), num_edges - hits
    features, written = read * bursts, num_dst * bursts
    stream = memory.stream(on_bus=True)
    vectors = memory.random(bursts, on_bus=True, runs=-(-num_src // channels))
    out = memory.stream("write", on_bus=True)
    adjacency_ns, features_ns = adjacency * stream.ns / channels, features * vectors.ns / channels
    write_ns = written * out.ns / channels
    commands = energy.Commands(
        adjacency + features,
        written,
        adjacency * stream.activations + features * vectors.activations + written * out.activations,
    )
    moved = (adjacency + features + written) * burst
    return BaselineRun(
        adjacency_ns,
        features_ns,
        write_ns,
        reads=read,
        hits=hits,
        bytes={
            "adjacency_read": adjacency * burst,
            "feature_read": features * burst,
            "feature_useful": read * vector,
            "results_write": written * burst,
        },
        energy_nj={
            **energy.dram_nj(commands, memory, config.topology.ranks, adjacency_ns + features_ns + write_ns),
            "host_path": energy.host_path_nj(config.energy, moved),
        },
    )
