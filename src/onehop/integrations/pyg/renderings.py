"""The two kinds of ``propagate`` that PyG gives to classes: one that it renders, and its plain one.

When the first layer of a class is made, PyG renders a ``propagate`` for the arguments of its functions. It
reads their annotations and the source of the class, and keeps the result by the names of module and class.
Where that fails, PyG says nothing, and layers run the plain ``MessagePassing.propagate``: annotations do not
agree, or the class was made by ``exec`` or in ``python -c``, where there is no source. Both kinds do the
same, except for what is here.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv import message_passing

from onehop.integrations.pyg.conditions import LEFT_TO_PYG
from onehop.integrations.rows import replaced

VALUES_ELSEWHERE = (
    "edge_index is a sparse matrix, whose values PyG's plain propagate passes as other arguments too"
)

_OTHER_ARGUMENTS = "PyG rendered the propagate that it runs for functions with other arguments"
_VALUES = ("edge_weight", "edge_attr", "edge_type")
# The functions with arguments, and how many of these PyG passes by place.
_FUNCTIONS = (("message", 0), ("aggregate", 1), ("update", 1))


def is_plain(theirs: Any) -> bool:
    """Return whether a ``propagate`` or ``edge_updater`` is PyG's plain one, which nobody has wrapped."""
    return getattr(theirs, "__globals__", None) is vars(message_passing) and replaced(theirs) is None


def operands_of(theirs: Callable[..., Any]) -> frozenset[str]:
    """The operands of a ``propagate`` that PyG rendered."""
    return frozenset(inspect.signature(theirs).parameters) - {"self", "edge_index", "size"}


def rendering_reason(kind: Any, theirs: Callable[..., Any]) -> str | None:
    """Return why a class has no fast path for the ``propagate`` that it runs; None if that fits.

    One that was rendered for other functions passes the arguments and the defaults of those: PyG renders once
    for all classes of the same name, and a class for which it cannot render runs that of its parent.
    """
    if is_plain(theirs):
        return None
    collect, operands = theirs.__globals__["collect"], operands_of(theirs)
    names = set()
    for name, default in _arguments(kind):
        names.add(name)
        passed = name in operands or name.endswith(("_i", "_j")) or name in MessagePassing.special_args
        if not passed and default is not inspect.Parameter.empty:
            # PyG writes the text of the default into the source.
            try:
                rendered = f"    {name} = {default}\n" in inspect.getsource(collect)
            except OSError:
                rendered = False
            if not rendered:
                return _OTHER_ARGUMENTS
    return None if names == set(theirs.__globals__["CollectArgs"]._fields) else _OTHER_ARGUMENTS


def _arguments(kind: Any) -> Iterator[tuple[str, Any]]:
    """The arguments that PyG collects for the functions of a class, with their defaults."""
    layer = object.__new__(kind)  # for its methods alone
    for function, by_place in _FUNCTIONS:
        parameters = inspect.signature(getattr(layer, function)).parameters
        for parameter in list(parameters.values())[by_place:]:
            yield parameter.name, parameter.default


def rendered_reason(names: frozenset[str], kwargs: dict[str, Any]) -> str | None:
    """Return why a layer is left to the ``propagate`` that PyG rendered for such operands; None if not."""
    return None if kwargs.keys() - {"size"} == names else LEFT_TO_PYG


def plain_reason(layer: Any, kwargs: dict[str, Any], over_matrix: bool) -> str | None:
    """Return why a layer that runs PyG's plain ``propagate`` is left to it; None if it is not.

    Args:
        layer: The layer.
        kwargs: What ``propagate`` gets by name.
        over_matrix: Whether its edges are a sparse matrix.
    """
    asked = layer._user_args
    for name in asked:
        # PyG passes an empty value here, and not the default.
        if (name[:-2] if name.endswith(("_i", "_j")) else name) not in kwargs:
            return LEFT_TO_PYG
    missing = [name for name in _VALUES if name in asked and kwargs[name] is None]
    return VALUES_ELSEWHERE if over_matrix and missing and missing != ["edge_weight"] else None
