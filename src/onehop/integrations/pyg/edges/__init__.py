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
        weight: [E]; None if every edge counts as it is.
        scale: [N], numbers whose products over the ends of the edges are the weight; or None.
        first: Whether the gradient of a max or min goes to the first of the edges that tie.
    """

    graph: Any
    weight: Tensor | None = None
    scale: Tensor | None = None
    first: bool = False


class Edges:
    """The edges of one call of ``propagate``.

    PyG numbers the ends of edges by the rows of ``edge_index``, in either flow. A rule notes the number of
    rows of each operand; what was noted last decides the number of nodes, as in PyG.

    Attributes:
        edge_index: What ``propagate`` was called with: an ``edge_index`` or a matrix.
        index: Their node numbers, a tensor.
        count: E, the number of edges.
        sizes: The number of rows at each end; None where it is unknown.
        forwards: Whether row 0 sends to row 1 (``flow="source_to_target"``).
        sending: The row of ``edge_index``, and the entry of a pair, that messages come from.
        is_cpu: Whether they are on the CPU, which takes less time to read than the device.
        fused: Whether PyG multiplies by a sparse matrix, and runs no message.
        is_part: Whether they are one process's part of a divided graph, which PyG cannot run.
        is_traced: Whether a program is traced, whose tensors have no data.
        is_list: Whether they are a list of node numbers, which can be copied.
        is_few: Whether they are so few that no graph is made of them.
    """

    __slots__ = ("count", "edge_index", "forwards", "index", "is_cpu", "sending", "sizes")
    fused = False
    unmade: type | None = None
    """The class of weights that are stored as a number for each node, and computed where a rule needs it."""
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
        """The numbers of edges that PyG passes for a missing weight; None if there are none."""
        return None

    def refusal(self, backend: str, x: Tensor) -> str | None:
        """Return why the backend of this name, or each one, refuses such features; None if one takes them."""
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
        """The number of nodes that send, and that receive; one that is unknown equals the other.

        Raises:
            Leave: Neither is known, or one is no integer.
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
        """The graph of the edges and of the numbers of nodes that were noted.

        Raises:
            Leave: A number of a node is out of range.
        """
        raise NotImplementedError

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """The graph, and the factors of the sources' features.

        Args:
            x: The features.
            weight: [E], the layer's weight; None without one, and where PyG multiplies by a matrix.
            reduce: "sum", "mean", "max" or "min".
            weighted: Whether the layer's messages have a weight at all.

        Raises:
            Leave: PyG's own code has to run.
        """
        raise NotImplementedError

    def ends(self, row: int) -> Tensor:
        """The sources (row 0) or the destinations (row 1), [E], as PyG numbers rows."""
        raise NotImplementedError

    def blocks(self, graph: Graph, block_edges: int, cut: bool) -> EdgeBlocks:
        """The blocks of edges, as :func:`.blocks_of` makes them; they are kept with the graph."""
        return blocks_of(graph, block_edges, cut)

    def drawn(self, out: Tensor, p: float) -> Tensor:
        """The factors of PyG's dropout, as PyG would draw them now, for numbers in the order of ``out``.

        Args:
            out: Any numbers, which may be overwritten.
            p: The probability of 0.
        """
        return drawn(out, p)


def drawn(out: Tensor, p: float) -> Tensor:
    """The factors of PyG's dropout; as :meth:`Edges.drawn`."""
    if session.now.settings.dropout and serves(out, p):
        return factors(out, p)
    return dropout(torch.ones_like(out), p=p, training=True)
