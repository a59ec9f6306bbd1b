"""Analytic estimate of the time of an epoch of full-graph training on many machines.

Traffic is counted, not modelled: an exchange moves one row for every pair of a node and another part that has
an edge from the node. Time is the maximum of computation and communication, which overlap. Computation is
scaled from a measured epoch. For an unknown partition, a random partition gives an upper bound of the
traffic.
"""

from dataclasses import dataclass

from onehop.distributed.loads import IMBALANCE
from onehop.errors import ArgumentError

# Bytes per edge of a divided graph in training, in 32-bit numbers: the edge's source and number, its source
# in a split, and source and number in the transpose of the split.
_EDGE_BYTES = 20
# Bytes per owned row: bounds of the row's edges in the part, in both graphs of the split and in the transpose
# of the first graph, in 64 bits; the node's number and a scale in 32 bits.
_ROW_BYTES = 40
# Bytes per received row: bounds of its edges in the transpose in 64 bits; its number here and on its owner in
# 32 bits.
_HALO_BYTES = 16
# Number of tables of the widest layer: features, saved tensors of the backward pass, and gradients.
_TABLES = 3


@dataclass(frozen=True, slots=True)
class Epoch:
    """Sizes of a graph and a model, for one epoch.

    Attributes:
        nodes: Number of nodes in the graph.
        edges: Number of edges in the graph.
        features: Number of input columns.
        hidden: Number of columns of the widest layer.
        columns: Number of columns that are aggregated in an epoch, forward and backward; see :func:`columns`.
        number_bytes: Bytes of a number.
    """

    nodes: float
    edges: float
    features: int
    hidden: int
    columns: int
    number_bytes: int = 4


@dataclass(frozen=True, slots=True)
class HostRates:
    """Rates and memory of one machine.

    gathered_gbps: Gathered bytes (edges times columns times bytes of a number) that an epoch processes per
        nanosecond, including its dense steps; measured.
        network_gbps: Gigabytes, not gigabits, per second that the machine sends while it receives equally
            many.
        memory_bytes: Size of the machine's memory.
    """

    gathered_gbps: float
    network_gbps: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of an epoch on a number of machines.

    Attributes:
        hosts: Number of machines.
        compute_s: Time that each machine needs for its rows.
        network_s: Time that each machine needs for its messages.
        epoch_s: The larger of the two times.
        sent_bytes: Bytes that all machines together send.
        memory_bytes: Memory that each machine needs.
        fits: Whether each machine has this memory.
        binds: "memory" if the epoch does not fit, else "network" or "compute".
    """

    hosts: int
    compute_s: float
    network_s: float
    epoch_s: float
    sent_bytes: float
    memory_bytes: float
    fits: bool
    binds: str


def columns(model: str, features: int, hidden: int, classes: int) -> int:
    """Return the number of columns that a model of two layers sends, and aggregates, in an epoch.

    GCN and GATv2 multiply first, and their gradients pass through both layers; the first layer of SAGE
    aggregates the features themselves, which need no gradient. ``hidden`` counts the columns of all heads
    together.

    Raises:
        ArgumentError: ``model`` is not "gcn", "sage" or "gatv2".
    """
    if model == "sage":
        return features + 2 * hidden
    if model in ("gcn", "gatv2"):
        return 2 * (hidden + classes)
    raise ArgumentError(f"model: expected gcn, sage or gatv2, got {model!r}.")


def traffic_bytes(cut_rows: float, columns: int, number_bytes: int = 4) -> float:
    """Return the bytes that all processes send in an epoch; rows are ``DistributedGraph.part.cut_rows``."""
    return cut_rows * columns * number_bytes


def graph_bytes(rows: float, cut_rows: float, edges: float) -> float:
    """Return the bytes of divided graphs that train with sums; features are not counted.

    This is ``DistributedGraph.nbytes`` as a formula. The arguments are the numbers of owned rows, of rows
    that are received (each of which is also sent), and of edges that end in owned rows. Tests compare the
    result with the count of two processes.
    """
    return rows * _ROW_BYTES + cut_rows * _HALO_BYTES + edges * _EDGE_BYTES


def cut_rows_by_chance(nodes: float, edges: float, parts: int) -> float:
    """Return the rows of an exchange with a random partition, an upper bound for any reasonable partition.

    A node with d edges has an edge into a given other part with probability 1 - (1 - 1 / parts)^d. The
    formula uses the mean degree for d; a graph with hubs sends less.
    """
    if parts == 1:
        return 0.0
    elsewhere: float = (1 - 1 / parts) ** (edges / max(nodes, 1))
    return nodes * (parts - 1) * (1 - elsewhere)


def estimate(
    epoch: Epoch, host: HostRates, hosts: int, cut_rows: float, imbalance: float = IMBALANCE
) -> Estimate:
    """Estimate an epoch on a number of equal machines.

    ``cut_rows`` is the number of rows in an exchange, over all machines together. ``imbalance`` is the number
    of rows and edges of the largest part, divided by the mean.
    """
    gathered = epoch.edges * epoch.columns * epoch.number_bytes
    # A single machine has everything, so no part is larger than the others.
    share = imbalance / hosts if hosts > 1 else 1.0
    compute_s = gathered * share / (host.gathered_gbps * 1e9)
    sent = traffic_bytes(cut_rows, epoch.columns, epoch.number_bytes)
    network_s = sent * share / (host.network_gbps * 1e9)
    rows = (epoch.nodes + cut_rows) * max(epoch.features, epoch.hidden) * _TABLES * epoch.number_bytes
    memory = (rows + graph_bytes(epoch.nodes, cut_rows, epoch.edges)) * share
    fits = memory <= host.memory_bytes
    binds = "network" if network_s > compute_s else "compute"
    return Estimate(
        hosts=hosts,
        compute_s=compute_s,
        network_s=network_s,
        epoch_s=max(compute_s, network_s),
        sent_bytes=sent,
        memory_bytes=memory,
        fits=fits,
        binds=binds if fits else "memory",
    )
