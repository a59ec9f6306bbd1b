"""Attention weights that are not computed yet, because a fused ``propagate`` may not need them.

GAT's layers compute a weight for every edge and head in ``edge_updater``, and pass the weights to
``propagate``. A fused ``propagate`` does not need them, but the layer returns them on request, and only
``forward`` knows of the request. So our ``forward`` notes whether the weights were requested, and
``edge_updater`` then returns a :class:`Pending` instead of the weights. Our ``propagate`` either runs fused,
and stores the weights in the :class:`Pending` if they were requested, or lets PyG compute them and continues
as PyG does. If PyG's ``forward`` returns the :class:`Pending`, our ``forward`` replaces it by the weights.
"""

import inspect
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.integrations.pyg.known import edge_updates
from onehop.integrations.rows import Function, Leave, building, stand_in
from onehop.ops.contexts import as_program

_REQUEST = "return_attention_weights"

# The layer whose forward is running, whether its weights were requested, and the scores of the destinations
# if they are computed already.
_running: ContextVar[tuple[Any, bool, Tensor | None]] = ContextVar(
    "onehop_attention_forward", default=(None, True, None)
)


@dataclass(slots=True, eq=False)
class Pending:
    """A call of ``edge_updater`` that has not been made.

    Attributes:
        kind: The kind of scores that ``edge_update`` computes: "gat" or "gatv2".
        theirs: PyG's ``edge_updater``.
        layer: The layer.
        edge_index: The edges, as ``edge_updater`` got them.
        operands: The other arguments, by name.
        asked: Whether ``forward`` returns the weights.
        weights: [E, H], after the dropout of this call; None before they are computed.
    """

    kind: str
    theirs: Function
    layer: Any
    edge_index: Any
    operands: dict[str, Any]
    asked: bool
    weights: Tensor | None = None

    def compute(self) -> Tensor:
        """Return the weights, computed by PyG only once, because a second call would draw another dropout."""
        if self.weights is None:
            self.weights = self.theirs(self.layer, self.edge_index, **self.operands)
        return self.weights

    def keep(self, weights: Tensor) -> None:
        """Stores the weights that a fused operator computed."""
        self.weights = weights


def settled(operands: dict[str, Any]) -> dict[str, Any]:
    """Return the operands for PyG's ``propagate``, with pending weights computed."""
    weights = operands.get("alpha")
    return {**operands, "alpha": weights.compute()} if type(weights) is Pending else operands


def unasked(layer: Any) -> bool:
    """Return whether the layer's ``forward`` is running, and its weights were not requested."""
    running, asked, _ = _running.get()
    return running is layer and not asked


def noting(theirs: Function, traced: Function, scores: Function | None = None) -> Function:
    """Return a ``forward`` that notes whether its caller requests the weights.

    Args:
        theirs: PyG's ``forward``.
        traced: Runs while a program is traced, with (theirs, place of the request, layer, args, kwargs).
        scores: Computes the destinations' scores from a layer's pair of features, or raises :class:`Leave`;
            None for layers that also need the destinations' features otherwise.
    """
    ours, in_program, part = _forward, as_program, building.get()
    in_dynamo, flags = torch.compiler.is_dynamo_compiling, torch.compiler
    # The parameters without self.
    names = list(inspect.signature(theirs).parameters)[1:]
    place = names.index(_REQUEST)

    def forward(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if not part.on:
            return theirs(self, *args, **kwargs)
        if in_dynamo() or flags._is_compiling_flag or (in_program.live and in_program.get()):
            return traced(theirs, place, self, args, kwargs)
        return ours(theirs, names, place, scores, self, args, kwargs)

    return stand_in(theirs, forward)


def _forward(
    theirs: Function,
    names: list[str],
    place: int,
    scores: Function | None,
    layer: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    requested, score = args[place] if len(args) > place else kwargs.get(_REQUEST), None
    if scores is not None and requested is None and type(args[0] if args else kwargs.get("x")) is tuple:
        score, args, kwargs = _with_score(scores, layer, names, args, kwargs)
    before = _running.set((layer, requested is not None, score))
    try:
        result = theirs(layer, *args, **kwargs)
    finally:
        _running.reset(before)
    if requested is None:
        return result
    match result:
        case (out, (edges, Pending() as pending)):
            return out, (edges, pending.compute())
    return result


def _with_score(
    scores: Function, layer: Any, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor | None, tuple[Any, ...], dict[str, Any]]:
    """Return the destinations' scores, or None, and the arguments with which PyG's ``forward`` then runs."""
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    edge_index: Any = arguments.get("edge_index")
    # If arguments do not fit, PyG raises its own error.
    fits = len(arguments) == len(args) + len(kwargs) and type(edge_index) is Tensor
    if not fits or edge_index.layout is not torch.strided:
        return None, args, kwargs
    try:
        score = scores(layer, arguments["x"])
    except Leave:
        return None, args, kwargs
    source, target = arguments["x"]
    size = arguments.get("size")
    size = (source.size(0), target.size(0)) if size is None else size
    return score, (), {**arguments, "x": (source, None), "size": size}


def wrap_edge_updater(theirs: Function, traced: Function) -> Function:
    """Return an ``edge_updater`` that postpones its work if our ``propagate`` may not need it.

    Args:
        theirs: PyG's ``edge_updater``.
        traced: Runs while a program is traced, with (theirs, layer, edge_index, args, kwargs).
    """
    ours, running, in_program = _edge_updater, _running, as_program
    in_dynamo, flags = torch.compiler.is_dynamo_compiling, torch.compiler

    def edge_updater(self, edge_index, *args, **kwargs):  # type: ignore[no-untyped-def]
        if in_dynamo() or flags._is_compiling_flag or (in_program.live and in_program.get()):
            return traced(theirs, self, edge_index, args, kwargs)
        layer, asked, score = running.get()
        if layer is not self or args:
            return theirs(self, edge_index, *args, **kwargs)
        if score is not None:
            kwargs["alpha"] = (kwargs["alpha"][0], score)
        return ours(theirs, self, edge_index, asked, kwargs)

    return stand_in(theirs, edge_updater)


def _edge_updater(theirs: Function, layer: Any, edge_index: Any, asked: bool, kwargs: dict[str, Any]) -> Any:
    kind, state = edge_updates().get(type(layer).edge_update), layer.__dict__
    propagate = type(layer).propagate
    if (
        kind is not None
        # PyG itself writes requested weights into an adjacency matrix.
        and not (asked and not (isinstance(edge_index, Tensor) and edge_index.layout is torch.strided))
        # This is replaced(), without a call.
        and getattr(propagate, "onehop_theirs", propagate) is getattr(propagate, "__wrapped__", None)
        and "propagate" not in state
        and "edge_update" not in state
        and not state["_edge_update_forward_pre_hooks"]
        and not state["_edge_update_forward_hooks"]
    ):
        return Pending(kind, theirs, layer, edge_index, kwargs, asked)
    return theirs(layer, edge_index, **kwargs)
