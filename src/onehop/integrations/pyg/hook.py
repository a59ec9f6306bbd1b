"""Hooks in PyG: ``propagate`` and ``edge_updater``, which PyG renders for each class, are wrapped.

PyG renders them when the first instance of a class is made, in ``MessagePassing._set_jittable_templates``. A
wrapper round that method takes care of classes to come; classes that have theirs already are swept. The plain
``propagate`` that PyG keeps for explainers (``_orig_propagate``) is left alone.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch_geometric.nn import MessagePassing

from onehop.integrations.pyg.pending import wrap_edge_updater
from onehop.integrations.pyg.programs import traced
from onehop.integrations.pyg.propagate import wrap
from onehop.integrations.rows import Row, stand_in

_TEMPLATES = "_set_jittable_templates"
_WRAPPERS = {
    "propagate": partial(wrap, traced=traced.propagate),
    "edge_updater": partial(wrap_edge_updater, traced=traced.edge_updater),
}
_ATTRIBUTES = tuple(f"{prefix}{name}" for name in _WRAPPERS for prefix in ("", "_jinja_", "_orig_"))


def template_row() -> Row:
    """The table's row for the method that renders."""
    theirs = getattr(MessagePassing, _TEMPLATES)
    return Row(MessagePassing, _TEMPLATES, _rendering(theirs), theirs)


def _rendering(theirs: Callable[..., Any]) -> Callable[..., Any]:
    ours = wrap_class

    def _set_jittable_templates(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        theirs(self, *args, **kwargs)
        ours(type(self))

    return stand_in(theirs, _set_jittable_templates)


def wrap_class(kind: type) -> None:
    """Wraps the functions rendered for a class, as far as it has some of its own."""
    own: Any = vars(kind)
    for name, wrapper in _WRAPPERS.items():
        rendered, kept = own.get(name), f"_jinja_{name}"
        if rendered is None or hasattr(rendered, "onehop_theirs") or own.get(kept) is not rendered:
            continue
        # One that somebody wrote by hand is kept by PyG under the same names; it has another module.
        if not rendered.__module__.startswith(f"{kind.__module__}_{kind.__name__}_"):
            continue
        wrapped = wrapper(rendered)
        setattr(kind, name, wrapped)
        setattr(kind, kept, wrapped)


def wrap_existing() -> None:
    """Wraps the classes whose functions were rendered before."""
    for kind in layer_classes():
        wrap_class(kind)


def unwrap_all() -> None:
    """Gives every class its own functions back.

    ``_orig_propagate`` is among them: of a subclass of a class that was wrapped before, PyG keeps the
    parent's.
    """
    for kind in layer_classes():
        for name in _ATTRIBUTES:
            theirs = getattr(vars(kind).get(name), "onehop_theirs", None)
            if theirs is not None:
                setattr(kind, name, theirs)


def wrapped_classes() -> list[str]:
    """The dotted names of the functions that are wrapped now."""
    return [
        f"{kind.__module__}.{kind.__qualname__}.{name}"
        for kind in layer_classes()
        for name in _WRAPPERS
        if hasattr(vars(kind).get(name), "onehop_theirs")
    ]


def layer_classes() -> Iterator[type]:
    """Every class of layers that exists."""
    seen: set[type] = set()
    waiting: list[type] = [MessagePassing]
    while waiting:
        kind = waiting.pop()
        if kind not in seen:
            seen.add(kind)
            yield kind
            waiting.extend(kind.__subclasses__())
