"""The classes of layers: what their layers compute, and why they have no fast path.

It is decided once for each class and ``propagate``, and again when a function of the class is replaced.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch_geometric.nn import MessagePassing

from onehop.integrations import session
from onehop.integrations.pyg.conditions import OTHER_OPERANDS, PLAIN_STEPS, STEPS
from onehop.integrations.pyg.recognise import AttentionForm, Form, block_messages, message_forms
from onehop.integrations.pyg.renderings import is_plain, operands_of, rendering_reason
from onehop.integrations.pyg.steps import Arguments, arguments_of
from onehop.integrations.rows import replaced

Propagate = Callable[..., Any]

_functions = attrgetter("message", *STEPS)
_all_functions = attrgetter("message", *STEPS, *PLAIN_STEPS)


class ClassRecord:
    """Facts about a class of layers.

    Attributes:
        form: What its messages are; None if the first tier does not know them.
        reason: Why the first tier does not.
        block_reason: Why its messages cannot run in blocks; None if the class is not in the way.
        fuses: Whether the class has a fused path of PyG's own.
        attends: Messages are weighed by attention.
        compiles: Whether they can be compiled where the first tier does not take them, though it knows them.
        plain: Whether its ``propagate`` is PyG's plain one, and not one that was rendered.
        first: The operand of ``propagate`` with the sources' features; empty without a form.
        names: The operands that ``propagate`` gets, but for ``size``; of a plain one those of the form.
        arguments: The arguments of its message function, where PyG's steps may run without PyG's questions.
        noted: The refusals of layers of the class that were noted: they are not noted again.
        selection: The layers that the patch takes, as it was when the class was looked at.
    """

    __slots__ = (
        "_functions",
        "_get_attention",
        "arguments",
        "attends",
        "block_reason",
        "compiles",
        "first",
        "form",
        "fuses",
        "names",
        "noted",
        "plain",
        "reason",
        "selection",
    )

    def __init__(self, kind: Any, theirs: Propagate) -> None:
        self._functions: Any = _functions(kind)
        self._get_attention = getattr(kind, "get_attention", None)
        self.selection = session.now.layers
        self.fuses = kind.message_and_aggregate is not MessagePassing.message_and_aggregate
        self.plain = is_plain(theirs)
        operands = None if self.plain else operands_of(theirs)
        found, misfit = class_reason(kind), rendering_reason(kind, theirs)
        if not isinstance(found, str):
            found = misfit or (found if operands in (None, found.names) else OTHER_OPERANDS)
        self.form: Form | AttentionForm | None = None if isinstance(found, str) else found
        self.reason = found if isinstance(found, str) else None
        self.names = (operands or frozenset()) if self.form is None else self.form.names
        self.first = "" if self.form is None else self.form.first
        self.attends = isinstance(self.form, AttentionForm)
        self.compiles = isinstance(self.form, AttentionForm) and self.form.compiles
        self.block_reason = block_class_reason(kind) or misfit
        self.arguments: Arguments | None = None
        steps = self.form is not None or (self.block_reason is None and _is_of_pyg(kind))
        # PyG's steps end with its own functions.
        ends = (kind.aggregate, kind.update) == (MessagePassing.aggregate, MessagePassing.update)
        if steps and ends and not self.plain:
            self.arguments = arguments_of(kind.message, self.names)
        self.noted: set[str] = set()

    def holds(self, kind: Any) -> bool:
        """Return whether the functions of the class and the selection of the patch are those looked at."""
        return (
            self.selection is session.now.layers
            and self._functions == _functions(kind)
            and self._get_attention is getattr(kind, "get_attention", None)
        )


class _LooseRecord(ClassRecord):
    """A record that does not hold its class, whose functions may."""

    __slots__ = ("_references",)

    def __init__(self, kind: Any, theirs: Propagate) -> None:
        super().__init__(kind, theirs)
        self._references = [ref(function) for function in _present(kind)]
        self._functions = self._get_attention = None  # which may hold it

    def holds(self, kind: Any) -> bool:
        """Return as :class:`ClassRecord` does."""
        functions = [each() for each in self._references]
        return self.selection is session.now.layers and functions == _present(kind)


def _present(kind: Any) -> list[Any]:
    """The functions of a class that its record depends on."""
    return [*_all_functions(kind), *filter(None, [getattr(kind, "get_attention", None)])]


class Records(dict[type, ClassRecord]):
    """The records of the classes whose layers run one ``propagate`` of PyG's.

    The class that the function was rendered for has its record in the dictionary, and dies with it. Classes
    that inherit the function have theirs in ``others``, where they are not held: the plain one outlives them.

    Attributes:
        theirs: The function.
        others: The records of classes that inherit it.
    """

    def __init__(self, theirs: Propagate) -> None:
        super().__init__()
        self.theirs = theirs
        self.others: WeakKeyDictionary[type, ClassRecord] = WeakKeyDictionary()

    def made(self, kind: type) -> ClassRecord:
        """The record of a class that has none in the dictionary, or one that is out of date."""
        record = self.others.get(kind)
        if record is not None and record.holds(kind):
            return record
        if replaced(vars(kind).get("propagate")) is self.theirs:
            record = self[kind] = ClassRecord(kind, self.theirs)
        else:
            record = self.others[kind] = _LooseRecord(kind, self.theirs)
        return record


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


def _is_of_pyg(kind: Any) -> bool:
    """Return whether the message of a class is one of PyG's that treat each edge on its own."""
    return kind.message in block_messages()


_LEFT_OUT = "patch(only=...) leaves its class out"


def is_left_out(kind: Any) -> bool:
    """Return whether ``patch(only=...)`` names neither a class nor one that it derives from."""
    layers = session.now.layers
    return layers is not None and layers.isdisjoint(base.__name__ for base in kind.__mro__)
