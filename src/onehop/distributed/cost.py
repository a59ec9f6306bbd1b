"""What an epoch of full-graph training would take on many machines: a model with few parts.

Traffic is counted, not modelled: an exchange moves one row for every pair of a node and another part that has
an edge from it. Time is that of the slowest of two things that overlap, computing and sending. What computing
takes is scaled from an epoch that was measured; a partition that was not made is bounded by one by chance.
"""

from dataclasses import dataclass

from onehop.errors import ArgumentError

# Of every edge: source and place in rows, and the same of the transpose, each in 32 bits.
_EDGE_BYTES = 16
# Features, what a layer keeps for its backward pass, and gradients: so many tables of the widest layer.
_TABLES = 3


@dataclass(frozen=True, slots=True)
class Epoch:
    """What is trained on.

    Attributes:
        nodes: Of the graph.
        edges: Of the graph.
        features: Columns of the input.
        hidden: Columns of the widest layer.
        columns: Columns that are aggregated in an epoch, forward and backward; see :func:`columns`.
        number_bytes: Of a number.
    """

    nodes: float
    edges: float
    features: int
    hidden: int
    columns: int
    number_bytes: int = 4


@dataclass(frozen=True, slots=True)
class Host:
    """One machine.

    Attributes:
        gathered_gbps: Bytes of sources' rows, edges times columns times the bytes of a number, that an epoch
            goes through in a nanosecond, its dense steps included: measured.
        network_gbps: Gigabytes, not bits, a second that it sends while it receives as many.
        memory_bytes: Its memory.
    """

    gathered_gbps: float
    network_gbps: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """An epoch on some machines.

    Attributes:
        hosts: How many.
        compute_s: Time of each for its rows.
        network_s: Time of each for its messages.
        epoch_s: The larger of the two.
        sent_bytes: By all together.
        memory_bytes: Needed on each.
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

    GCN and GATv2 multiply first, and their gradients go back through both layers; the first layer of SAGE
    aggregates the features themselves, which need no gradient.

    Args:
        model: "gcn", "sage" or "gatv2".
        features: Columns of the input.
        hidden: Columns between the layers, those of all heads together.
        classes: Columns of the output.

    Raises:
        ArgumentError: Another model.
    """
    if model == "sage":
        return features + 2 * hidden
    if model in ("gcn", "gatv2"):
        return 2 * (hidden + classes)
    raise ArgumentError(f"model: expected gcn, sage or gatv2, got {model!r}.")


def traffic_bytes(cut_rows: float, columns: int, number_bytes: int = 4) -> float:
    """What all processes together send in an epoch.

    Args:
        cut_rows: Of the partition: ``DistributedGraph.part.cut_rows``.
        columns: See :func:`columns`.
        number_bytes: Of a number.
    """
    return cut_rows * columns * number_bytes


def cut_rows_by_chance(nodes: float, edges: float, parts: int) -> float:
    """Rows of an exchange if every node's part is drawn: no partition worth its name sends more.

    A node with d edges has one of them end in a given other part with probability 1 - (1 - 1 / parts)^d. With
    the mean degree for d, a graph with hubs sends less.
    """
    if parts == 1:
        return 0.0
    elsewhere: float = (1 - 1 / parts) ** (edges / max(nodes, 1))
    return nodes * (parts - 1) * (1 - elsewhere)


def estimate(epoch: Epoch, host: Host, hosts: int, cut_rows: float, imbalance: float = 1.05) -> Estimate:
    """An epoch on so many machines of a kind.

    Args:
        epoch: What is trained on.
        host: The kind of machine.
        hosts: How many.
        cut_rows: Rows of an exchange, of all together.
        imbalance: Work of the part with most of it, over the mean.
    """
    gathered = epoch.edges * epoch.columns * epoch.number_bytes
    compute_s = gathered * imbalance / hosts / (host.gathered_gbps * 1e9)
    sent = traffic_bytes(cut_rows, epoch.columns, epoch.number_bytes)
    network_s = sent * imbalance / hosts / (host.network_gbps * 1e9)
    rows = (epoch.nodes + cut_rows) * max(epoch.features, epoch.hidden) * _TABLES * epoch.number_bytes
    memory = (rows + epoch.edges * _EDGE_BYTES) / hosts
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
