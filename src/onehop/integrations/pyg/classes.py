"""Classes of layers: whether onehop knows their messages, and why they have no fast path.

PyG has two kinds of ``propagate``. When the first layer of a class is made, it renders one for the arguments
of the class's functions: it reads their annotations and the source of the class, and keeps the result by the
names of module and class. Where that fails, PyG says nothing, and layers run the plain
``MessagePassing.propagate``: annotations do not agree, or the class was made by ``exec`` or in ``python -c``,
where there is no source.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv import message_passing

from onehop.integrations import session
from onehop.integrations.pyg.recognise import AttentionForm, Form, block_messages, message_forms
from onehop.integrations.rows import replaced

Propagate = Callable[..., Any]

# Functions that PyG calls on the way and that must be its own; the last two from its plain propagate alone.
STEPS = ("aggregate", "update", "_check_input", "_set_size", "_index_select", "_index_select_safe")
PLAIN_STEPS = ("_collect", "_lift")

_LEFT_OUT = "patch(only=...) leaves its class out"
_OTHER_ARGUMENTS = "PyG rendered the propagate that it runs for functions with other arguments"
# The functions whose arguments PyG collects, and how many others come before these.
_FUNCTIONS = (("message", 0), ("aggregate", 1), ("update", 1))


def class_reason(kind: Any) -> Form | AttentionForm | str:
    """Return the form of the messages of a class; or why it has no fast path."""
    if is_left_out(kind):
        return _LEFT_OUT
    form = message_forms().get(kind.message)
    if form is None:
        return "its message function is its own, and onehop knows only those of PyG"
    own = form.needs if isinstance(form, AttentionForm) else ()
    for name in (*STEPS, *PLAIN_STEPS):
        if name not in own and getattr(kind, name) is not getattr(MessagePassing, name):
            return f"its class overrides {name}"
    if isinstance(form, AttentionForm):
        owner = next(base for base in kind.__mro__ if vars(base).get("message") is kind.message)
        for name in form.needs:
            if getattr(kind, name) is not getattr(owner, name):
                return f"its class overrides {name}"
    return form


def block_class_reason(kind: Any) -> str | None:
    """Return why the messages of a class cannot run in blocks; None if the class is not in the way."""
    if is_left_out(kind):
        return _LEFT_OUT
    for name in (*STEPS, *PLAIN_STEPS):
        # An update of its own runs as it is, on the reduced messages.
        if name != "update" and getattr(kind, name) is not getattr(MessagePassing, name):
            return f"its class overrides {name}"
    return None


def is_of_pyg(kind: Any) -> bool:
    """Return whether the message of a class is one of PyG's that treat each edge on its own."""
    return kind.message in block_messages()


def is_left_out(kind: Any) -> bool:
    """Return whether ``patch(only=...)`` names neither a class nor one that it derives from."""
    layers = session.now.layers
    return layers is not None and layers.isdisjoint(base.__name__ for base in kind.__mro__)


def is_plain(theirs: Any) -> bool:
    """Return whether a ``propagate`` or ``edge_updater`` is PyG's plain one, and not wrapped."""
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
