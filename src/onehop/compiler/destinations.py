"""Destination numbers in a message, and the message's own reductions over destinations.

A softmax over a destination's edges consists of such steps: a reduction by ``index``, and gathering the
result's rows by ``index`` again. Both stay inside a destination.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.aten import Mixes, Place, Places

_MOVES = frozenset({"view", "_unsafe_view", "reshape", "expand", "unsqueeze", "alias", "detach", "clone"})
_SAME = frozenset({"detach", "alias", "clone"})
_MIXED = "it mixes edges with what was reduced over destinations"


class Destinations:
    """Keeps track of tensors with destination numbers, and of tensors with a row for every destination.

    Args:
        numbers: The tensors that hold the number of every edge's destination.
        pairs: By the id of tensors [2, edges] with the numbers of both ends: the row of the destinations.
        count: The number of destinations; None if the message does not get it.
        edges: The number of edges.

    Attributes:
        of_edges: Whether a reduction had as many rows as there are edges; its last rows are then empty. PyG's
            ``softmax`` does so if it takes ``x_i.size(0)`` as the number of nodes.
    """

    def __init__(self, numbers: list[Tensor], pairs: dict[int, int], count: int | None, edges: int) -> None:
        self.of_edges = False
        self._count, self._edges = count, edges
        self._numbers = {id(tensor) for tensor in numbers}
        self._pairs = pairs
        # For each tensor with a row for every destination, by id: the number of destinations.
        self._rows: dict[int, int] = {}

    def are_numbers(self, tensor: Any) -> bool:
        """Return whether each edge's entries in a tensor are the number of the edge's destination."""
        return id(tensor) in self._numbers

    def have_rows(self, tensor: Any) -> bool:
        """Return whether a tensor has a row for every destination, made from the rows of its edges."""
        return id(tensor) in self._rows

    def rows(self, tensor: Any) -> int | None:
        """Return how many destinations have a row in a tensor; None if it has no such rows."""
        return self._rows.get(id(tensor))

    def rule(
        self, operation: Any, name: str, bound: dict[str, Any], tensors: list[Tensor]
    ) -> Callable[[Any, Places], Place | None] | None:
        """Return the rule of an operation on such tensors; None for all other operations.

        The rule takes the operation's result, notes what it is, and returns the place of the edges in it.

        Raises:
            Mixes: The operation does not stay inside a destination.
        """
        if name in ("scatter_add_", "scatter_reduce_") and self.are_numbers(bound["index"]):
            return self._reduces(name, bound)
        if any(map(self.have_rows, tensors)):
            if name in ("index_select", "index"):
                return self._takes(name, bound)
            return self._computes(operation, name, tensors)
        return None

    def follow(self, name: str, bound: dict[str, Any], result: Any) -> None:
        """Notes results that are destination numbers: reshaped, or selected from the numbers of both ends."""
        if name in _MOVES and self.are_numbers(bound["self"]):
            self._numbers.add(id(result))
        row = self._pairs.get(id(bound.get("self")))
        if row is None or bound.get("dim", 0) % 2:
            return
        if name == "unbind":
            self._numbers.add(id(result[row]))
        elif name == "select" and bound["index"] % 2 == row:
            self._numbers.add(id(result))

    def _reduces(self, name: str, bound: dict[str, Any]) -> Callable[[Any, Places], Place | None]:
        fits = name == "scatter_add_" or (bound["reduce"] == "amax" and bound.get("include_self") is False)
        if not fits or not _is_first(bound["dim"], bound["src"]):
            raise Mixes("it reduces over destinations in a way that is not known")
        rows, *row = bound["self"].shape
        same = bound["index"].shape == bound["src"].shape and tuple(row) == bound["src"].shape[1:]
        if not same or rows not in (self._count, self._edges):
            raise Mixes("it reduces over destinations in a way that is not known")

        def note(result: Any, places: Places) -> Place | None:
            if places(bound["src"]) != Place(0) or (places(bound["self"]) and rows == self._count):
                raise Mixes(_MIXED)
            self.of_edges |= rows == self._edges
            self._rows[id(result)] = rows
            return None

        return note

    def _takes(self, name: str, bound: dict[str, Any]) -> Callable[[Any, Places], Place | None]:
        index = bound["index"] if name == "index_select" else (*bound["indices"], None)[0]
        if not self.are_numbers(index) or index.dim() != 1 or not self.have_rows(bound["self"]):
            raise Mixes(_MIXED)
        if not _is_first(bound.get("dim", 0), bound["self"]) or len(bound.get("indices", [0])) != 1:
            raise Mixes(_MIXED)
        return lambda result, places: Place(0)

    def _computes(
        self, operation: Any, name: str, tensors: list[Tensor]
    ) -> Callable[[Any, Places], Place | None]:
        if torch.Tag.pointwise not in operation.tags and name not in _SAME:
            raise Mixes(_MIXED)
        if not all(self.have_rows(tensor) or tensor.dim() == 0 for tensor in tensors):
            raise Mixes(_MIXED)
        counts = {self._rows[id(tensor)] for tensor in tensors if tensor.dim()}

        def note(result: Any, places: Places) -> Place | None:
            if not isinstance(result, Tensor) or result.dim() == 0 or {result.size(0)} != counts:
                raise Mixes(_MIXED)
            self._rows[id(result)] = result.size(0)
            return None

        return note


def _is_first(dim: int, tensor: Tensor) -> bool:
    return dim % max(tensor.dim(), 1) == 0
