"""The gradients of a message, as the autograd graph of its trial shows them."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.autograd.function import BackwardCFunction


class Refused(Exception):
    """The message cannot run in blocks; the text says why."""


class History:
    """The nodes of the autograd graph of some tensors, and the leaves that their gradients reach.

    Args:
        outs: The tensors.

    Raises:
        Refused: A gradient function is written in Python, so it may mix edges without any visible operation.
    """

    def __init__(self, outs: Iterable[Tensor]) -> None:
        self._nodes: set[Any] = set()
        self._leaves: dict[int, Tensor] = {}
        for out in outs:
            if out.grad_fn is not None:
                self._add(out.grad_fn)
            elif out.requires_grad:
                self._leaves[id(out)] = out

    def reaches(self, tensor: Tensor) -> bool:
        """Return whether a tensor, or a tensor that it is made from, gets a gradient."""
        if tensor.grad_fn is None:
            return id(tensor) in self._leaves
        return any(
            node in self._nodes or id(getattr(node, "variable", None)) in self._leaves
            for node in _nodes_behind(tensor.grad_fn)
        )

    def _add(self, start: Any) -> None:
        for node in _nodes_behind(start):
            if isinstance(node, BackwardCFunction):
                raise Refused(f"its message uses an autograd function of its own ({type(node).__name__})")
            self._nodes.add(node)
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, Tensor):
                self._leaves[id(leaf)] = leaf


def _nodes_behind(start: Any) -> Iterable[Any]:
    waiting, seen = [start], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]
