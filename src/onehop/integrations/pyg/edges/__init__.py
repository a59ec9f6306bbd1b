"""The edges of a propagation, in every form that PyG takes. This package uses no rules and no messages."""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout

from onehop import ops
from onehop.backends import refusal
from onehop.compiler.blocks import EdgeBlocks, blocks_of
from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.pyg.leave import LEFT_TO_PYG, OUT_OF_RANGE, Leave
from onehop.ops.dropout import factors, serves

SOURCE, TARGET = 0, 1


class Factors(NamedTuple):
    """The graph of an aggregation, and the factors of its messages.

    Attributes:
        graph: The edges: a :class:`onehop.Graph`, a part of a divided graph, or a graph in a program.
        weight: [E]; None means 1.
        scale: [N]: the weight of an edge is the product of its ends' numbers; None means 1.
        first: Whether the gradient of a max or min goes to the first of the edges that tie.
    """

    graph: Any
    weight: Tensor | None = None
    scale: Tensor | None = None
    first: bool = False


class Edges:
    """The edges of one call of ``propagate``.

    End 0 or 1 of an edge is its entry in row 0 or 1 of ``edge_index``, in either flow, as in PyG. A rule
    notes the number of rows of each operand; as in PyG, these decide the number of nodes.

    Attributes:
        edge_index: The argument of ``propagate``: an ``edge_index`` or a matrix.
        index: The node numbers of the edges, a tensor.
        count: E, the number of edges.
        sizes: The number of rows at each end; None if it is unknown.
        forwards: Whether row 0 sends to row 1 (``flow="source_to_target"``).
        sending: The row of ``edge_index``, and the entry of a pair, that messages come from.
        is_cpu: Whether the edges are on the CPU; reading this takes less time than reading the device.
        fused: Whether PyG multiplies by a sparse matrix instead of running the message.
        is_part: Whether the edges are one process's part of a divided graph, which PyG cannot run.
        is_traced: Whether a program is traced; then tensors have no data.
        is_list: Whether the edges are a list of node numbers, which can be copied.
        is_few: Whether there are so few edges that no graph is made.
    """

    __slots__ = ("count", "edge_index", "forwards", "index", "is_cpu", "sending", "sizes")
    fused = False
    unmade: type | None = None
    """The class of weights that are stored as a number for each node and computed on demand, or None."""
    is_part = False
    is_traced = False
    is_list = False
    is_few = False
    operators: ModuleType = ops
    """The operators that run over the graph."""

    edge_index: Any
    index: Tensor
    count: int
    sizes: list[int | None]
    forwards: bool
    sending: int
    is_cpu: bool

    @property
    def device(self) -> torch.device:
        """The device of the edges."""
        return self.index.device

    @property
    def values(self) -> Tensor | None:
        """The values of the edges that PyG passes for a missing weight; None if there are none."""
        return None

    def refusal(self, backend: str, x: Tensor) -> str | None:
        """Return why the backend (empty: every backend) refuses such features; None if one takes them."""
        return refusal(backend, x.device, x.dtype)

    def note(self, end: int, rows: int) -> None:
        """Notes the number of rows at an end.

        Raises:
            Leave: Another number was noted before.
        """
        current = self.sizes[end]
        if current is None:
            self.sizes[end] = rows
        elif current != rows:
            raise Leave(LEFT_TO_PYG)

    def counts(self, sentence: str = OUT_OF_RANGE) -> tuple[int, int]:
        """Return the numbers of sending and of receiving nodes; if one is unknown, it equals the other.

        Raises:
            Leave: Both are unknown, or one is not an integer.
        """
        sending = self.sending
        num_src, num_dst = self.sizes[sending], self.sizes[1 - sending]
        if num_src is None:
            num_src = num_dst
        if num_dst is None:
            num_dst = num_src
        if type(num_src) is not int or type(num_dst) is not int:
            raise Leave(sentence)
        return num_src, num_dst

    def graph(self) -> Graph:
        """Return the graph of the edges, with the numbers of nodes that were noted.

        Raises:
            Leave: A node number is out of range.
        """
        raise NotImplementedError

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """Return the graph, and the factors of the sources' features.

        Args:
            x: The features.
            weight: [E], the layer's weight; None without a weight, or if PyG multiplies by a matrix.
            reduce: "sum", "mean", "max" or "min".
            weighted: Whether the layer's messages have a weight at all.

        Raises:
            Leave: PyG's own code has to run.
        """
        raise NotImplementedError

    def ends(self, row: int) -> Tensor:
        """Return the nodes in row 0 or row 1 of ``edge_index``, [E]."""
        raise NotImplementedError

    def blocks(self, graph: Graph, block_edges: int, cut: bool) -> EdgeBlocks:
        """Return the blocks of edges from :func:`.blocks_of`; they are cached with the graph."""
        return blocks_of(graph, block_edges, cut)

    def drawn(self, out: Tensor, p: float) -> Tensor:
        """Return the factors of dropout that PyG would draw now for a tensor like ``out``.

        Args:
            out: A tensor whose values may be overwritten.
            p: The probability of 0.
        """
        return drawn(out, p)


def drawn(out: Tensor, p: float) -> Tensor:
    """Return the factors of PyG's dropout; see :meth:`Edges.drawn`."""
    if session.now.settings.dropout and serves(out, p):
        return factors(out, p)
    return dropout(torch.ones_like(out), p=p, training=True)
