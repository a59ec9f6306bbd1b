"""Where PyG is hooked: the ``propagate`` that PyG renders for each class is wrapped, class by class.

PyG renders it when the first instance of a class is made, in ``MessagePassing._set_jittable_templates``. A
wrapper round that method takes care of classes to come; classes that have theirs already are swept. The plain
``propagate`` that PyG keeps for explainers (``_orig_propagate``) is left alone.
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch_geometric.nn import MessagePassing

from onehop.integrations.pyg.propagate import wrap
from onehop.integrations.rows import Row, stand_in

_TEMPLATES = "_set_jittable_templates"
_ATTRIBUTES = ("propagate", "_jinja_propagate", "_orig_propagate")


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
    """Wraps the rendered ``propagate`` of a class, if it has one of its own."""
    own: Any = vars(kind)
    rendered = own.get("propagate")
    if rendered is None or hasattr(rendered, "onehop_theirs") or own.get("_jinja_propagate") is not rendered:
        return
    # A propagate that somebody wrote by hand is kept by PyG under the same names; it has another module.
    if not rendered.__module__.startswith(f"{kind.__module__}_{kind.__name__}_"):
        return
    wrapped = wrap(rendered)
    kind.propagate = wrapped  # type: ignore[attr-defined]
    kind._jinja_propagate = wrapped  # type: ignore[attr-defined]


def wrap_existing() -> None:
    """Wraps the classes whose ``propagate`` was rendered before."""
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
        f"{kind.__module__}.{kind.__qualname__}.propagate"
        for kind in layer_classes()
        if hasattr(vars(kind).get("propagate"), "onehop_theirs")
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
