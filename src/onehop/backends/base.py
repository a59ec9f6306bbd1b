"""What every backend offers."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.kernels.attention_operands import AttentionGrads, AttentionOperands


class Backend(Protocol):
    """A way to run the operators.

    ``graph`` with ``transposed`` stands for the graph with every edge turned round. Weights and scales come
    in the accumulator's dtype (float64 for float64, else float32); ``widen`` asks for results in that dtype.
    ``mean`` divides every edge's part by the number of edges of its destination, in the transposed graph too.
    """

    name: str

    def describe(self) -> str:
        """One line on what it is and what it will use on this machine."""
        ...

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why it cannot run on such tensors; None means it can."""
        ...

    def prepare(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> Any:
        """The plan for a graph and a width, at a cost that does not grow with the graph."""
        ...

    def aggregate(
        self,
        graph: Graph,
        transposed: bool,
        x: Tensor,
        weight: Tensor | None,
        src_scale: Tensor | None,
        dst_scale: Tensor | None,
        mean: bool,
        widen: bool,
    ) -> Tensor:
        """Sum or mean over each row's edges.

        ``weight`` is [E], or [E, H], whose columns weigh one H-th of the columns of ``x`` each.
        """
        ...

    def extremum(
        self,
        graph: Graph,
        x: Tensor,
        weight: Tensor | None,
        reduce: str,
        widen: bool,
        with_ties: bool,
        adds: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Max or min, and the number of edges that reach it (an empty tensor if not asked for).

        With ``adds``, messages are weight + x in place of weight * x.
        """
        ...

    def extremum_grad(
        self,
        graph: Graph,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        extremum: Tensor,
        ties: Tensor,
        for_x: bool,
        for_weight: bool,
        adds: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Gradients of max or min to x and to the weights (empty tensors where not asked for)."""
        ...

    def edge_softmax(self, graph: Graph, scores: Tensor) -> Tensor:
        """[E, H]: softmax over every destination's edges."""
        ...

    def edge_softmax_grad(self, graph: Graph, softmax: Tensor, grad: Tensor) -> Tensor:
        """[E, H]: the gradient to the scores, from the result and the gradient to it."""
        ...

    def sddmm(self, graph: Graph, dst: Tensor, src: Tensor, mean: bool, widen: bool) -> Tensor:
        """[E, H]: a dot product for every edge and head."""
        ...

    def fusedmm(self, graph: Graph, dst: Tensor, src: Tensor, rule: str, factor: float) -> Tensor:
        """[num_dst, F]: sums over edges that are weighed by their ends (see :func:`onehop.fusedmm`)."""
        ...

    def attend(
        self, graph: Graph, operands: AttentionOperands, with_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention over each destination's edges.

        Returns:
            The output [num_dst, H, V]; acc [num_dst, 2, H], for each row the largest score and one divided
            by the sum of the exponentials of scores less that; and acc [E, H], the weights (an empty tensor
            if not asked for).
        """
        ...

    def attend_grad(
        self,
        graph: Graph,
        operands: AttentionOperands,
        out: Tensor,
        softmax: Tensor,
        weights: Tensor | None,
        grad: Tensor,
        grad_weights: Tensor | None,
        wanted: Sequence[bool],
    ) -> AttentionGrads:
        """Gradients, from what :meth:`attend` returned and the gradients to its output and its weights.

        ``wanted`` says for each field of :class:`AttentionGrads` whether it is needed.
        """
        ...
