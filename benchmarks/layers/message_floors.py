"""The least time for a forward and backward pass of layers with messages: what must be moved and multiplied.

A message's source has one or more rows of the layer's width, which are gathered edge by edge; rows of
destinations are at hand while a row is reduced. The backward pass goes over the edges twice: by source, where
rows of destinations are gathered (the gradient, and what the message's derivative asks of them), and by
destination, where its own rows have a gradient and the sources' are gathered again. Products with a
concatenation are split, so that they are over nodes; those with features of edges are over edges. Bytes move
at the speed of a gather of the graph's own rows, and products run in the fastest library for their shape
(:mod:`onehop.bench.floors`). No row is expected in a cache, so a graph with hubs can be faster than that.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.bench.cases import Workload
from onehop.bench.floors import AGGREGATION, PRODUCTS, Roofs
from onehop.bench.limits import attention_bytes
from onehop.bench.work import EpochWork, Product

_FLOAT_BYTES = _INDEX_BYTES = 4


class Linear(NamedTuple):
    """A product with a matrix of the layer.

    Attributes:
        depth: Columns that come in.
        columns: Columns that go out.
        over_edges: Whether edges are multiplied, or nodes.
    """

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


def message_works(width: int, narrow: int) -> dict[str, MessageWork]:
    """The layers of bench_messages.py.

    Args:
        width: Columns of the nodes' features.
        narrow: Columns of the edges' features, where they are narrow.
    """
    square, double = Linear(width, width), Linear(width, 2 * width)
    joined = Linear(13 * width, width)  # of four aggregators with three scalers, and the node's own
    return {
        "gine": MessageWork(1, 1, (square,), width),
        "gine-narrow": MessageWork(1, 1, (square, Linear(narrow, width, over_edges=True)), narrow),
        # By source k and the gradient; by destination q and v.
        "resgated": MessageWork(2, 4, (square,) * 4),
        # Both factors: by source two rows and the gradient; by destination two.
        "cg": MessageWork(2, 5, (square,) * 4),
        "cg-narrow": MessageWork(2, 5, (*(square,) * 4, Linear(narrow, 2 * width, over_edges=True)), narrow),
        # By source gamma, beta and the gradient; by destination the source's row.
        "film": MessageWork(1, 4, (square, double, square, double)),
        # By source a linear function of the source's row, two coefficients a destination.
        "pna": MessageWork(1, 2, (square, square, joined, square)),
        # By source the normaliser, the result and the gradient.
        "gen": MessageWork(1, 3, (double, Linear(2 * width, width))),
        # By source the destination's part and the gradient; by destination the source's part.
        "edge-sum": MessageWork(1, 3, (square,) * 3),
        # The same, but the second product cannot leave the edges. Its gradients count in full, though one
        # edge alone matters for each column of a destination.
        "edge-max": MessageWork(1, 3, (square, square, Linear(width, width, over_edges=True))),
        # Weights of the heads follow from four columns; sources' rows are summed for each head, and then
        # multiplied. By source the gradient; by destination the source's row.
        "feast": MessageWork(1, 2, (Linear(4 * width, width),)),
        # The logit's part and the value's. By source the destination's part, the normaliser, the result and
        # the gradient; a row's softmax has no gradient to what its edges share.
        "point-transformer": MessageWork(2, 4, (*(square,) * 3, Linear(3, width))),
    }


def message_floor(work: MessageWork, workload: Workload, width: int, roofs: Roofs) -> dict[str, float]:
    """Seconds of the parts, and their sum as "total".

    Args:
        work: What the layer does.
        workload: The graph.
        width: Columns of the nodes' features.
        roofs: Of this machine and graph.
    """
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
    """Seconds of sums of rows over all edges of a graph; arguments as of :func:`attention_floor`.

    Sums by pairs of a type and a node, too, gather each edge once.
    """
    row, edges, nodes = width * _FLOAT_BYTES, workload.num_edges, workload.num_nodes
    moved = 2 * (edges * (row + _INDEX_BYTES) + nodes * row)
    return _seconds(moved, width, products, roofs)


def fewest_pairs(workload: Workload, edge_type: Tensor) -> int:
    """Pairs of an edge's type and its node, at whichever end has fewer of them.

    A relation's matrix multiplies as many rows: of sources before the sum, or of sums after it.
    """
    ends = workload.edge_index
    return min(int((edge_type * workload.num_nodes + end).unique().numel()) for end in ends)


def attention_floor(
    kind: str, workload: Workload, heads: int, width: int, products: Mapping[Linear, int], roofs: Roofs
) -> dict[str, float]:
    """Seconds of attention over all edges of a graph.

    Args:
        kind: "gat" or "transformer", as :func:`onehop.bench.limits.attention_bytes` has it.
        workload: The graph.
        heads: Of the layer.
        width: Columns of all heads together.
        products: Rows that each product multiplies.
        roofs: Of this machine and graph.
    """
    moved = attention_bytes(kind, workload.num_edges, workload.num_nodes, heads, width // heads)
    return _seconds(sum(moved), width, products, roofs)


def beside_floor(seconds: float, floor: dict[str, float]) -> str:
    """A floor, and how many times as long something took, for the end of a line."""
    total = floor["total"]
    return f"floor {total * 1e3:.1f} ms (products {floor[PRODUCTS] * 1e3:.1f}), {seconds / total:.1f}x of it"


def joined(edges: dict[Any, Tensor], nodes: int) -> Workload:
    """The edges of many relations among types of as many nodes each, as one graph.

    Args:
        edges: [2, E] by (type, relation, type).
        nodes: Of each type.
    """
    first = {kind: at * nodes for at, kind in enumerate(sorted({end for a, _, b in edges for end in (a, b)}))}
    shifted = [each + torch.tensor([[first[a]], [first[b]]]) for (a, _, b), each in edges.items()]
    return Workload("relations", torch.cat(shifted, 1), len(first) * nodes)


def _seconds(moved: int, width: int, products: Mapping[Linear, int], roofs: Roofs) -> dict[str, float]:
    """Seconds to move so many bytes of rows, and for the products with their two gradients each."""
    work = EpochWork(gathered=Counter({width: moved}))
    for linear, rows in products.items():
        work.products[Product(rows, linear.depth, linear.columns)] += 1
        work.products[Product(linear.columns, rows, linear.depth)] += 1
        work.products[Product(rows, linear.columns, linear.depth)] += 1
    floor = roofs.floor(work)
    return {
        AGGREGATION: floor[AGGREGATION],
        PRODUCTS: floor[PRODUCTS],
        "total": floor[AGGREGATION] + floor[PRODUCTS],
    }
