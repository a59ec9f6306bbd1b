"""Functions that stand in for PyG's while a program is traced."""

from collections.abc import Callable
from typing import Any

from onehop.integrations.pyg.edges.program import EdgesInProgram
from onehop.integrations.pyg.leave import Leave
from onehop.integrations.pyg.pending import Pending
from onehop.integrations.pyg.programs import attention, conditions
from onehop.integrations.pyg.programs.propagate import propagate as in_program, reason

Function = Callable[..., Any]


def propagate(
    theirs: Function, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """``propagate``: onehop's operators, or PyG's code and a note why."""
    sentence = reason(layer, edge_index, args, kwargs)
    if sentence is None:
        try:
            return in_program(layer, edge_index, kwargs)
        except Leave as why:
            sentence = why.sentence
    if sentence:
        conditions.refuse(layer, sentence)
    return theirs(layer, edge_index, *args, **kwargs)


def edge_updater(
    theirs: Function, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """``edge_updater``, whose work is ``propagate``'s where onehop's operators run that."""
    if type(edge_index) is EdgesInProgram:
        return Pending(edge_index.kind, theirs, layer, edge_index, kwargs, False)
    return theirs(layer, edge_index, *args, **kwargs)


def attention_forward(
    theirs: Function, place: int, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The ``forward`` of attention layers, which leaves the self loops to ``propagate`` where it can.

    Args:
        theirs: PyG's.
        place: Of the argument that asks for the attention weights.
        layer: The layer.
        args: Features, ``edge_index``, edge features and others.
        kwargs: Those that were given by name.
    """
    asked = args[place] if len(args) > place else kwargs.get("return_attention_weights")
    x, edge_index, features = (
        args[at] if len(args) > at else kwargs.get(name)
        for at, name in enumerate(("x", "edge_index", "edge_attr"))
    )
    sentence, found = attention.reason(layer, edge_index, asked), None
    if sentence is None:
        try:
            found = attention.edges_of(layer, x, edge_index, features)
        except Leave as why:
            sentence = why.sentence
    if sentence is not None:
        conditions.refuse(layer, sentence)
        return theirs(layer, *args, **kwargs)
    if len(args) > 1:
        return theirs(layer, args[0], found, *args[2:], **kwargs)
    return theirs(layer, *args, **{**kwargs, "edge_index": found})
