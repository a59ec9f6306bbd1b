"""An analytic estimate of an epoch of full-graph training on many machines.

Traffic is counted, not modelled: an exchange moves one row for every pair of a node and another part that has
an edge from it. Time is the maximum of computation and communication, which overlap. Computation is scaled
from a measured epoch; the traffic of an unknown partition is bounded by a random partition's.
"""

from dataclasses import dataclass

from onehop.distributed.loads import IMBALANCE
from onehop.errors import ArgumentError

# Of a divided graph in training, in 32 bits: the source and the number of an edge, its source in a split, and
# source and number in the transpose of that.
_EDGE_BYTES = 20
# Of an owned row: bounds of its edges in the part, in both graphs of the split and in the transpose of the
# first, in 64 bits; the node's number and a scale in 32.
_ROW_BYTES = 40
# Of a row that is received: bounds of its edges in the transpose in 64 bits; its number here and there in 32.
_HALO_BYTES = 16
# Features, saved tensors of the backward pass, and gradients: the number of tables of the widest layer.
_TABLES = 3


@dataclass(frozen=True, slots=True)
class Epoch:
    """Sizes of graph and model.

    Attributes:
        nodes: Nodes of the graph.
        edges: Edges of the graph.
        features: Columns of the input.
        hidden: Columns of the widest layer.
        columns: Columns that are aggregated in an epoch, forward and backward; see :func:`columns`.
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
    """One machine.

    Attributes:
        gathered_gbps: Gathered bytes (edges times columns times bytes of a number) that an epoch processes in
            a nanosecond, its dense steps included: measured.
        network_gbps: Gigabytes, not bits, a second that it sends while it receives as many.
        memory_bytes: Size of its memory.
    """

    gathered_gbps: float
    network_gbps: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """An epoch on some machines.

    Attributes:
        hosts: Number of machines.
        compute_s: Time of each for its rows.
        network_s: Time of each for its messages.
        epoch_s: The larger of the two.
        sent_bytes: Bytes sent by all together.
        memory_bytes: Memory needed on each.
        fits: Whether each has it.
        binds: "memory" where it does not fit, else "network" or "compute".
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
    """Columns that a model of two layers sends, and aggregates, in an epoch.

    GCN and GATv2 multiply first, and their gradients pass through both layers; the first layer of SAGE
    aggregates the features themselves, which need no gradient. Hidden columns are those of all heads
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
    """Bytes that all processes send in an epoch; the rows are ``DistributedGraph.part.cut_rows``."""
    return cut_rows * columns * number_bytes


def graph_bytes(rows: float, cut_rows: float, edges: float) -> float:
    """Bytes of divided graphs that train with sums, as ``DistributedGraph.nbytes`` counts them; no features.

    Of the owned rows, the rows that are received (each of which is also sent), and the edges that end in
    owned rows. Tests compare it with what two processes count.
    """
    return rows * _ROW_BYTES + cut_rows * _HALO_BYTES + edges * _EDGE_BYTES


def cut_rows_by_chance(nodes: float, edges: float, parts: int) -> float:
    """Rows of an exchange with a random partition, an upper bound for any reasonable one.

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
    """Estimates an epoch on a number of machines of one kind.

    ``cut_rows`` are the rows of an exchange, of all together. ``imbalance`` is the number of rows and edges
    of the part with most of them, over the mean.
    """
    gathered = epoch.edges * epoch.columns * epoch.number_bytes
    # A single machine has everything, and no part that is larger than others.
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
