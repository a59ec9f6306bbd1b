"""Self loops added and removed, remembered, for the layers that do it on every call.

Edge attributes, which may need gradients, are rewritten by PyG every time. The edges are remembered, so that
their graph is found again. Sparse matrices are kept with their values.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.integrations.pyg.edges.derived import can_remember, rewritten
from onehop.integrations.pyg.edges.derived_matrices import derived
from onehop.integrations.pyg.edges.matrices import is_matrix
from onehop.integrations.pyg.edges.processes import parts_for
from onehop.integrations.rows import stand_in
from onehop.ops import contexts
from onehop.ops.contexts import context_reason

Rewrite = Callable[..., Any]


def remembering_add(theirs: Rewrite) -> Rewrite:
    """PyG's ``add_self_loops`` with a memory."""
    ours = _rewrite

    def add_self_loops(  # type: ignore[no-untyped-def]
        edge_index, edge_attr=None, fill_value=None, num_nodes=None
    ):
        if type(num_nodes) is not int:
            return theirs(edge_index, edge_attr, fill_value, num_nodes)
        return ours(theirs, "add_self_loops", edge_index, edge_attr, fill_value, num_nodes)

    return stand_in(theirs, add_self_loops)


def remembering_remove(theirs: Rewrite) -> Rewrite:
    """PyG's ``remove_self_loops`` with a memory."""
    ours = _rewrite

    def remove_self_loops(edge_index, edge_attr=None):  # type: ignore[no-untyped-def]
        return ours(theirs, "remove_self_loops", edge_index, edge_attr)

    return stand_in(theirs, remove_self_loops)


REMEMBERING = {"add_self_loops": remembering_add, "remove_self_loops": remembering_remove}
"""Makers of the patched functions, by the name of the function."""


def _rewrite(
    theirs: Rewrite, name: str, edge_index: Any, edge_attr: Any, fill_value: Any = None, num_nodes: Any = None
) -> Any:
    rest = () if name == "remove_self_loops" else (fill_value, num_nodes)
    if torch.compiler.is_compiling() or contexts.as_program:
        return theirs(edge_index, edge_attr, *rest)
    if can_remember(edge_index):
        attributes = None if edge_attr is None else theirs(edge_index, edge_attr, *rest)[1]
        (edges,) = rewritten(edge_index, (name, num_nodes), lambda: theirs(edge_index, None, *rest)[:1])
        return edges, attributes
    if type(edge_index) is not Tensor:
        parts = parts_for(edge_index)
        if parts is not None:
            return parts.rewritten_loops(name, edge_index, edge_attr, fill_value)
    # A tensor as the fill value would not do as a key.
    elif is_matrix(edge_index) and edge_attr is None and isinstance(fill_value, int | float | str | None):
        made = None
        if context_reason() is None:
            made = derived(edge_index, (name, *rest), lambda: theirs(edge_index, None, *rest)[0])
        if made is not None:
            return made, None
    return theirs(edge_index, edge_attr, *rest)
