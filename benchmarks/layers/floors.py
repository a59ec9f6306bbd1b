"""The least time for a forward and backward pass of layers: what must be moved and multiplied.

A message's source has one or more rows of the layer's width, which are gathered edge by edge; rows of
destinations are at hand while a row is reduced. The backward pass goes over the edges twice: by source, where
rows of destinations are gathered (the gradient, and what the message's derivative needs of them), and by
destination, where its own rows have a gradient and the sources' are gathered again. Products with a
concatenation are split, so that they are over nodes; those with features of edges are over edges. Bytes move
at the speed of a gather of the graph's own rows, and products run in the fastest library for their shape
(:mod:`onehop.bench.floors`). No row is expected in a cache, so a graph with hubs can be faster than that.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from benchmarks.layers.convs import ATTRIBUTES, HEADS, MANY, MORE, RELATIONS, Given
from onehop.bench.cases import Workload
from onehop.bench.floors import AGGREGATION, PRODUCTS, Roofs
from onehop.bench.limits import attention_bytes
from onehop.bench.work import EpochWork, Product

_FLOAT_BYTES = _INDEX_BYTES = 4
# Their edges are summed by pairs of a type and a node.
_BY_TYPE = ("RGCNConv", "FastRGCNConv", "RGATConv", "HEATConv", f"RGCNConv-{MANY}")


class Linear(NamedTuple):
    """A product with a matrix of the layer, [depth, columns], over nodes or over edges."""

    depth: int
    columns: int
    over_edges: bool = False


class MessageWork(NamedTuple):
    """What a layer moves and multiplies.

    Attributes:
        forward: Rows of the width gathered for an edge.
        backward: Likewise, in both passes over the edges together.
        products: Its products; each has two gradients.
        features: Columns of an edge's features. They are read forward and backward, and have a gradient.
    """

    forward: int
    backward: int
    products: tuple[Linear, ...]
    features: int = 0


def message_works(width: int) -> dict[str, MessageWork]:
    """Returns the work of layers whose messages are compiled, for columns of this width."""
    square, double = Linear(width, width), Linear(width, 2 * width)
    joined = Linear(13 * width, width)  # of four aggregators with three scalers, and the node's own
    of_edges, of_edges_twice = (Linear(ATTRIBUTES, times * width, over_edges=True) for times in (1, 2))
    return {
        "GINEConv": MessageWork(1, 1, (square, square, of_edges), ATTRIBUTES),
        # By source k and the gradient; by destination q and v.
        "ResGatedGraphConv": MessageWork(2, 4, (square,) * 4),
        # Both factors: by source two rows and the gradient; by destination two.
        "CGConv": MessageWork(2, 5, (*(square,) * 4, of_edges_twice), ATTRIBUTES),
        # By source gamma, beta and the gradient; by destination the source's row.
        "FiLMConv": MessageWork(1, 4, (square, double, square, double)),
        # By source a linear function of the source's row, two coefficients a destination.
        "PNAConv": MessageWork(1, 2, (square, square, joined, square)),
        # By source the normaliser, the result and the gradient.
        "GENConv": MessageWork(1, 3, (double, Linear(2 * width, width))),
        # By source the destination's part and the gradient; by destination the source's part.
        "EdgeConv-sum": MessageWork(1, 3, (square,) * 3),
        # The same, but the second product cannot leave the edges. Its gradients count in full, though one
        # edge alone matters for each column of a destination.
        "EdgeConv": MessageWork(1, 3, (square, square, Linear(width, width, over_edges=True))),
        # Weights of the heads follow from four columns; sources' rows are summed for each head, and then
        # multiplied. By source the gradient; by destination the source's row.
        "FeaStConv": MessageWork(1, 2, (Linear(4 * width, width),)),
        # The logit's part and the value's. By source the destination's part, the normaliser, the result and
        # the gradient; a row's softmax has no gradient to what its edges share.
        "PointTransformerConv": MessageWork(2, 4, (*(square,) * 3, Linear(3, width))),
    }


def floor_of(name: str, on: Given, roofs: Roofs) -> dict[str, float] | None:
    """Returns the seconds of a layer's parts, and their sum as "total"; None for layers without a floor.

    Args:
        name: A case of ``convs.py``.
        on: What the layer is called with.
        roofs: The rates of this machine for this graph.
    """
    width, nodes = on.x.size(1), on.num_nodes
    workload, square, head = Workload("", on.edges, nodes), Linear(width, width), width // HEADS
    if (work := message_works(width).get(name)) is not None:
        return message_floor(work, workload, width, roofs)
    if name in _BY_TYPE:
        types = MANY if name.endswith(str(MANY)) else RELATIONS
        rows = min(fewest_pairs(workload, on.types if types == RELATIONS else on.many_types), types * nodes)
        return sums_floor(workload, width, {square: rows + nodes}, roofs)
    if name == "HANConv":
        # Its features, and for each type the scores of what it gives.
        return attention_floor("gat", workload, width, {square: (1 + RELATIONS) * nodes}, roofs)
    if name == "HGTConv":
        # Keys, queries, values and the result; keys and values by the matrix of each type and head.
        products = {square: 4 * nodes, Linear(head, head): 2 * RELATIONS * nodes * HEADS}
        return attention_floor("transformer", workload, width, products, roofs)
    if name == "HeteroConv" or name in MORE:
        # Each relation multiplies the rows of both of its ends.
        rows = 2 * RELATIONS * nodes if name == "HeteroConv" else 2 * MANY * on.nodes_a_type
        if name.endswith("GAT"):
            return attention_floor("gat", workload, width, {square: rows}, roofs)
        return sums_floor(workload, width, {square: rows}, roofs)
    return None


def message_floor(work: MessageWork, workload: Workload, width: int, roofs: Roofs) -> dict[str, float]:
    """Returns the seconds of messages, as :func:`floor_of` does."""
    row, edges, nodes = width * _FLOAT_BYTES, workload.num_edges, workload.num_nodes
    rows = work.forward + work.backward
    of_features = 3 * work.features * _FLOAT_BYTES
    # Forward it writes the result; backward it reads the gradient and writes that of every source.
    moved = edges * (rows * row + 3 * _INDEX_BYTES + of_features) + 3 * nodes * row
    products: Counter[Linear] = Counter()
    for linear in work.products:
        products[linear] += edges if linear.over_edges else nodes
    return _seconds(moved, width, products, roofs)


def sums_floor(
    workload: Workload, width: int, products: Mapping[Linear, int], roofs: Roofs
) -> dict[str, float]:
    """Returns the seconds of sums over all edges; ``products`` has the rows that each product multiplies.

    Sums by pairs of a type and a node, too, gather each edge once.
    """
    row, edges, nodes = width * _FLOAT_BYTES, workload.num_edges, workload.num_nodes
    moved = 2 * (edges * (row + _INDEX_BYTES) + nodes * row)
    return _seconds(moved, width, products, roofs)


def fewest_pairs(workload: Workload, edge_type: Tensor) -> int:
    """Returns the pairs of an edge's type and its node, at whichever end has fewer of them.

    A relation's matrix multiplies as many rows: of sources before the sum, or of sums after it.
    """
    ends = workload.edge_index
    return min(int((edge_type * workload.num_nodes + end).unique().numel()) for end in ends)


def attention_floor(
    kind: str, workload: Workload, width: int, products: Mapping[Linear, int], roofs: Roofs
) -> dict[str, float]:
    """Returns the seconds of attention over all edges; ``kind`` is "gat" or "transformer"."""
    moved = attention_bytes(kind, workload.num_edges, workload.num_nodes, HEADS, width // HEADS)
    return _seconds(sum(moved), width, products, roofs)


def _seconds(moved: int, width: int, products: Mapping[Linear, int], roofs: Roofs) -> dict[str, float]:
    """Returns seconds to move so many bytes of rows, and for the products with their two gradients each."""
    work = EpochWork(gathered=Counter({width: moved}))
    for linear, rows in products.items():
        work.products[Product(rows, linear.depth, linear.columns)] += 1
        work.products[Product(linear.columns, rows, linear.depth)] += 1
        work.products[Product(rows, linear.columns, linear.depth)] += 1
    floor = roofs.floor(work)
    total = floor[AGGREGATION] + floor[PRODUCTS]
    return {AGGREGATION: floor[AGGREGATION], PRODUCTS: floor[PRODUCTS], "total": total}
