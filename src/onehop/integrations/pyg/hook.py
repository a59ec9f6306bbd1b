"""Wrappers of ``propagate`` and ``edge_updater``, both the plain functions and those rendered for a class.

``MessagePassing`` has the plain functions. PyG renders others for each class when the first instance is made,
in ``MessagePassing._set_jittable_templates``; if it cannot, layers run the plain functions. The patch
replaces this method, so that later classes are wrapped too. Existing classes are wrapped at once, together
with the functions that PyG keeps for explainers (``_orig_propagate``).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch_geometric.nn import MessagePassing

from onehop.integrations import session
from onehop.integrations.pyg import programs
from onehop.integrations.pyg.layer import is_plain
from onehop.integrations.pyg.pending import wrap_edge_updater
from onehop.integrations.pyg.propagate import wrap
from onehop.integrations.rows import Part, Row, building, host_function, replaced, stand_in

_TEMPLATES = "_set_jittable_templates"
_WRAPPERS = {
    "propagate": partial(wrap, traced=programs.propagate),
    "edge_updater": partial(wrap_edge_updater, traced=programs.edge_updater),
}
_ATTRIBUTES = tuple(f"{prefix}{name}" for name in _WRAPPERS for prefix in ("", "_jinja_", "_orig_"))


def template_row() -> Row:
    """Return the row of the patch table for the method that renders functions."""
    theirs, ours, part = host_function(MessagePassing, _TEMPLATES), _wrap_while_on, building.get()

    def _set_jittable_templates(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        # Wrap before it too, because PyG renders for a class only if its propagate is MessagePassing's.
        ours(part, type(self))
        theirs(self, *args, **kwargs)
        ours(part, type(self))

    return Row(MessagePassing, _TEMPLATES, stand_in(theirs, _set_jittable_templates), theirs)


def _wrap_while_on(part: Part, kind: type) -> None:
    # Another thread may be about to restore all classes.
    with session.lock:
        if part.on:
            wrap_class(kind)


def wrap_class(kind: type) -> None:
    """Wraps PyG's functions in the namespace of a class."""
    namespace: Any = vars(kind)
    for name, wrapper in _WRAPPERS.items():
        theirs, rendered, explained = namespace.get(name), f"_jinja_{name}", f"_orig_{name}"
        of_base = getattr(MessagePassing, name)
        if theirs is not None and theirs is replaced(of_base):
            setattr(kind, name, of_base)
        elif is_plain(theirs) or _is_rendered(kind, name):
            setattr(kind, name, wrapper(theirs))
        # A layer runs _orig_ while an explainer runs on it, and _jinja_ afterwards.
        of_explainers = namespace.get(explained)
        if of_explainers is not None and of_explainers is replaced(of_base):
            setattr(kind, explained, of_base)
        current = getattr(kind, name)
        if rendered in namespace and namespace[rendered] is replaced(current):
            setattr(kind, rendered, current)


def _is_rendered(kind: type, name: str) -> bool:
    """Return whether PyG rendered this function of a class, and it is not wrapped yet."""
    namespace: Any = vars(kind)
    theirs = namespace.get(name)
    return (
        theirs is not None
        and namespace.get(f"_jinja_{name}") is theirs
        # PyG keeps a hand-written function under the same name, with another module.
        and theirs.__module__ == f"{kind.__module__}_{kind.__name__}_{name}"
        and replaced(theirs) is None
    )


def wrap_existing() -> None:
    """Wraps the functions of all classes that exist."""
    for kind in layer_classes():
        wrap_class(kind)


def unwrap_all() -> None:
    """Restores the functions of every class."""
    for kind in layer_classes():
        for name in _ATTRIBUTES:
            theirs = replaced(vars(kind).get(name))
            if theirs is not None:
                setattr(kind, name, theirs)


def wrapped_classes() -> list[str]:
    """Return the dotted names of the functions that are wrapped now."""
    return [
        f"{kind.__module__}.{kind.__qualname__}.{name}"
        for kind in layer_classes()
        for name in _WRAPPERS
        if replaced(vars(kind).get(name)) is not None
    ]


def layer_classes() -> Iterator[type]:
    """Yields every existing class of layers."""
    seen: set[type] = set()
    waiting: list[type] = [MessagePassing]
    while waiting:
        kind = waiting.pop()
        if kind not in seen:
            seen.add(kind)
            yield kind
            waiting.extend(kind.__subclasses__())
