"""The interface of every simulated machine."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from onehop.calls import Attention, Extremum
from onehop.graph import Graph
from onehop.machines.common.report import Report


@runtime_checkable
class Machine(Protocol):
    """Simulated hardware that aggregates: returns the true result and a report of the simulated run.

    Any class with these members is a machine, without inheriting from this one, and
    ``onehop.patch(machine=...)`` runs models on it.

    Examples:
        >>> from onehop.machines import Machine, ndp, pim
        >>> isinstance(pim.Machine(), Machine), isinstance(ndp.Machine(), Machine)
        (True, True)
    """

    @property
    def name(self) -> str:
        """Name of the configuration."""
        ...

    def describe(self) -> str:
        """One line that describes the machine."""
        ...

    def refuse(self, dtype: torch.dtype) -> str | None:
        """Return why the machine cannot aggregate features of this dtype, or None if it can."""
        ...

    def aggregate(
        self,
        graph: Graph,
        x: Tensor,
        plan: Any = None,
        *,
        weight: Tensor | None = None,
        reduce: str = "sum",
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
    ) -> tuple[Tensor, Report]:
        """Aggregates features over a graph, as :func:`onehop.aggregate` does.

        Args:
            graph: The graph; for a backward pass, its transpose.
            x: [num_src, F], on the CPU.
            plan: A plan of the machine's own kind; None means its default.
            weight: [E], in the caller's edge order; None means 1.
            reduce: "sum" or "mean".
            src_scale: [num_src], multiplies the features on the host before they are sent; None means 1.
            dst_scale: [num_dst], multiplies the results on the host; None means 1.

        Returns:
            [num_dst, F], and the report.

        Raises:
            ArgumentError: A shape, dtype or plan does not fit.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSize:
    """Size of an attention, as :class:`onehop.calls.Attention` states it.

    Attributes:
        rule: "gat", "gatv2" or "dot".
        heads: H.
        width: V, columns of a head's value.
        key_width: D, columns of a head's key; for gat 1.
        dtype: Dtype of the features.
        edge_scores: Whether edges have their own scores: one number per edge and head (gat).
        edge_vectors: Whether edges have their own features: D columns per edge and head (gatv2, dot).
        masked: Whether softmaxed weights are multiplied by one number per edge and head.
    """

    rule: str
    heads: int
    width: int
    key_width: int
    dtype: torch.dtype
    edge_scores: bool = False
    edge_vectors: bool = False
    masked: bool = False

    @property
    def columns(self) -> int:
        """Number of columns of all heads' values together."""
        return self.heads * self.width

    @classmethod
    def of(cls, call: Attention) -> "AttentionSize":
        """Return the size of a call."""
        return cls(
            rule=call.rule,
            heads=call.heads,
            width=call.value.size(2),
            key_width=1 if call.rule == "gat" else call.query.size(2),
            dtype=call.value.dtype,
            edge_scores=call.rule == "gat" and call.edge is not None,
            edge_vectors=call.rule != "gat" and call.edge is not None,
            masked=call.mask is not None,
        )


@runtime_checkable
class OperatorMachine(Machine, Protocol):
    """A machine that has max, min and attention in addition to sums and means."""

    def refuse_extremum(self, dtype: torch.dtype) -> str | None:
        """Return why max and min of this dtype are not supported, or None; the text completes a sentence."""
        ...

    def refuse_attention(self, graph: Graph, size: AttentionSize) -> str | None:
        """Return why this attention cannot run over the graph, or None; the text completes a sentence."""
        ...

    def extremum(self, graph: Graph, call: Extremum, plan: Any = None) -> tuple[Tensor, Report]:
        """Return the max or min over each row's edges, [num_dst, F], and the report; ties are not counted.

        ``call`` has CPU tensors; ``plan`` is of the machine's own kind, None means its default.

        Raises:
            ArgumentError: The machine refuses the call, or the plan does not fit.
        """
        ...

    def attention(
        self, graph: Graph, call: Attention, plan: Any = None
    ) -> tuple[tuple[Tensor, Tensor], Report]:
        """Compute attention over each row's edges.

        Args:
            graph: The graph.
            call: The call, with CPU tensors and without dropout; weights are not returned.
            plan: A plan of the machine's own kind; None means the fastest that fits.

        Returns:
            [num_dst, H, V] and [num_dst, 2, H], the first two results of the call; and the report.

        Raises:
            ArgumentError: The machine refuses the call, or the plan does not fit.
        """
        ...
