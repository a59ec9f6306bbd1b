"""One call of ``propagate``, and the plan that a rule makes of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import Graph
from onehop.integrations import reports, session
from onehop.integrations.pyg import machine
from onehop.integrations.pyg.edges import Edges
from onehop.integrations.pyg.leave import EXACT, TOO_SMALL, Leave
from onehop.integrations.tuning import plan_text


@dataclass(slots=True)
class Call:
    """One call of a layer's ``propagate``: its arguments, and what the stages find out.

    Attributes:
        layer: The layer.
        record: The facts about the layer's class, a :class:`onehop.integrations.pyg.layer.ClassRecord`; None
            if no stage reads them.
        edge_index: The edges, as ``propagate`` got them.
        operands: The keyword arguments, including ``size``.
        args: The positional arguments.
        is_small: Whether the edges are so few that PyG's own code is as fast.
        edges: The edges in the form that rules read.
        reduce: How the layer reduces messages; empty if its own ``aggregate`` reduces them.
        backend: The name of the backend; empty means the first backend that takes the tensors.
    """

    layer: Any
    record: Any
    edge_index: Any
    operands: dict[str, Any]
    args: tuple[Any, ...] = ()
    is_small: bool = False
    edges: Any = None
    reduce: str = ""
    backend: str = ""

    def lowered(self, rule: Any, edges: Edges, backend: str) -> Any:
        """Return the plan that a rule makes of the operands that its specs admit.

        Args:
            rule: The rule.
            edges: The edges.
            backend: The backend's name.

        Raises:
            Leave: An operand does not fit, or the rule has no plan for the call.
        """
        self.edges, self.backend = edges, backend
        admitted = []  # a comprehension would cost one more Python call
        for name, spec in rule.operands.items():
            admitted.append(self.operands[name] if spec is None else spec(self, name))
        return rule.lower(self, *admitted)

    def fused(
        self,
        operator: str,
        form: str,
        x: Tensor,
        dtype: torch.dtype,
        make_operands: Callable[[], tuple[Any, ...]],
        extras: dict[str, Callable[[], Any]],
        keep: Callable[[Tensor], None] | None = None,
    ) -> "Plan":
        """Return the plan of attention that one operator runs, with the layer's dropout.

        Args:
            operator: "gat", "gatv2" or "attention".
            form: The messages, as ``explain`` shows them.
            x: The sources' features, [num_src, H, C] or [num_src, C].
            dtype: The dtype of the messages.
            make_operands: Makes the operator's positional operands, without the graph.
            extras: Functions that make the operands of edges, by the operator's parameter names.
            keep: Is called with the attention weights, [E, H]; None means that they are not returned.
        """
        layer, edges, graph = self.layer, self.edges, self.edges.graph()
        masked = bool(layer.training and getattr(layer, "dropout", 0))
        if edges.is_few and (extras or masked or keep is not None or dtype not in EXACT):
            raise Leave(TOO_SMALL)
        adds = (
            getattr(layer, "bias", None) is not None
            or getattr(layer, "res", None) is not None
            or getattr(layer, "root_weight", False)
        )
        backend, aside = self.backend, ""
        if session.now.machine:
            aside, backend = machine.place_attention(layer, graph, operator, x, dtype, bool(extras), masked)

        def run() -> Tensor:
            options: dict[str, Any] = {"backend": backend} if backend else {}
            for name, make in extras.items():
                options[name] = make()
            if masked:
                mask = x.new_empty((edges.count, x.size(1)), dtype=dtype)
                options["edge_mask"] = edges.drawn(mask, layer.dropout)
            if keep is not None:
                options["return_attention_weights"] = True
            out = getattr(edges.operators, operator)(graph, *make_operands(), **options)
            if keep is not None:
                out, weights = out
                # The weights are copied, because the backward pass reads them and the caller may write to
                # them.
                keep(weights.clone())
            if x.dim() == 2:
                out = out.squeeze(1)
            # Our backward pass reads the result of attention; PyG's does not. If the layer returns the result
            # as it is, the program may write to it, so it is copied.
            result: Tensor = out if adds else out.clone()
            return result

        shown = form if keep is None else f"{form}, with weights"
        return Plan(shown, "sum", graph, x, run, operator, dtype, backend, aside)


@dataclass(slots=True)
class Plan:
    """One propagation, ready to run.

    Attributes:
        form: The messages, as ``explain`` shows them.
        reduce: How messages are reduced.
        graph: The edges.
        x: The features of the sources, or the largest operand.
        run: Computes the result of ``propagate``.
        operator: The operator that computes everything; empty if there are several.
        dtype: The dtype of the messages; None means the dtype of ``x``.
        backend: The name of the backend; empty means the first that takes the tensors.
        aside: Why a simulated machine does not run the plan; empty if it does.
        shown: Makes the row of ``explain`` for a layer; None means that it is made from the other attributes.
    """

    form: str
    reduce: str
    graph: Graph
    x: Tensor
    run: Callable[[], Any]
    operator: str = ""
    dtype: torch.dtype | None = None
    backend: str = ""
    aside: str = machine.SEVERAL_OPERATORS
    shown: Callable[[Any], reports.Call] | None = None

    def described(self, layer: Any) -> reports.Call:
        """Return the row that ``explain`` shows."""
        if self.shown is not None:
            return self.shown(layer)
        dtype, x = self.dtype or self.x.dtype, self.x
        backend = backend_for(x.device, dtype, self.backend)
        heads = x.size(1) if x.dim() == 3 else 1
        operator = self.operator or self.reduce
        plan = plan_text(backend, self.graph, operator, x.size(-1), dtype, x.device, heads)
        return reports.Call(layer, None, self.form, self.reduce, backend.name, plan)


def begin(plan: Any, layer: Any, order: str | None = None) -> None:
    """Records for ``explain`` that a plan is about to run.

    Args:
        plan: The plan, or an aggregation.
        layer: The layer that it belongs to.
        order: "before" or "after" the linear step, if that is not the layer's own order; else None.
    """
    if reports.listener.live and reports.recording():
        call = plan.described(layer)
        form = call.form if order is None else f"{call.form}, {order} its linear step"
        reports.record(replace(call, form=form))
