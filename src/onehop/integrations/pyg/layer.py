"""The record of a class of layers: the rule of its messages, and what keeps them from leaving PyG's own code.

PyG has two kinds of ``propagate``. When the first layer of a class is made, it renders one for the arguments
of the class's functions: it reads their annotations and the source of the class, and keeps the result by the
names of module and class. Where that fails, PyG says nothing, and layers run the plain
``MessagePassing.propagate``: annotations do not agree, or the class was made by ``exec`` or in ``python -c``,
where there is no source.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Set
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv import message_passing

from onehop.integrations import session
from onehop.integrations.pyg.conditions import PLAIN_STEPS, STEPS, check_layer
from onehop.integrations.pyg.leave import Leave, leave_if, need
from onehop.integrations.pyg.rules import Rule, rules
from onehop.integrations.pyg.rules.own_message import ExplainedMessage, OwnMessage
from onehop.integrations.pyg.small_graphs import Steps, steps_of
from onehop.integrations.rows import is_own, replaced
from onehop.ops.contexts import context_reason

Propagate = Callable[..., Any]

LEFT_OUT = "patch(only=...) leaves its class out"
_OTHER_ARGUMENTS = "PyG rendered the propagate that it runs for functions with other arguments"
# The functions whose arguments PyG collects, and how many others come before these.
_FUNCTIONS = (("message", 0), ("aggregate", 1), ("update", 1))
_functions = attrgetter("message", *STEPS)
_all_functions = attrgetter("message", *STEPS, *PLAIN_STEPS)


# The class


def rule_of(kind: Any) -> Rule:
    """The rule of the messages of a class.

    Raises:
        Leave: It has none.
    """
    need(not is_left_out(kind), LEFT_OUT)
    rule = rules().get(kind.message)
    if rule is None:
        raise Leave("its message function is its own, and onehop knows only those of PyG")
    for name in (*STEPS, *PLAIN_STEPS):
        if name not in rule.needs:
            leave_if(_step_reason(kind, name))
    owner = next(base for base in kind.__mro__ if vars(base).get("message") is kind.message)
    for name in rule.needs:
        if getattr(kind, name) is not getattr(owner, name):
            raise Leave(f"its class overrides {name}")
    return rule


def block_class_reason(kind: Any) -> str | None:
    """Return why layers of a class cannot run their own messages; None if the class is not in the way."""
    if is_left_out(kind):
        return LEFT_OUT
    for name in (*STEPS, *PLAIN_STEPS):
        # Its own update runs as it is, on the reduced messages; its own aggregate is traced with the message.
        is_own_step = getattr(kind, name) is not getattr(MessagePassing, name)
        if not (is_own_step and name in ("aggregate", "update")):
            reason = _step_reason(kind, name)
            if reason is not None:
                return reason
    return None


def _step_reason(kind: Any, name: str) -> str | None:
    """Return why a step of message passing is not PyG's own for a class; None if it is."""
    step = getattr(MessagePassing, name)
    if getattr(kind, name) is not step:
        return f"its class overrides {name}"
    return None if is_own(step) else f"another library replaced {MessagePassing.__name__}.{name}"


def is_left_out(kind: Any) -> bool:
    """Return whether ``patch(only=...)`` names neither a class nor one that it derives from."""
    layers = session.now.layers
    return layers is not None and layers.isdisjoint(base.__name__ for base in kind.__mro__)


def is_plain(theirs: Any) -> bool:
    """Return whether a ``propagate`` or ``edge_updater`` is PyG's plain one, and not wrapped."""
    return getattr(theirs, "__globals__", None) is vars(message_passing) and replaced(theirs) is None


def rendering_reason(kind: Any, theirs: Propagate) -> str | None:
    """Return why a class has no fast path for the ``propagate`` that it runs; None if that fits.

    One that was rendered for other functions passes the arguments and the defaults of those: PyG renders once
    for all classes of the same name, and a class for which it cannot render runs that of its parent.
    """
    if is_plain(theirs):
        return None
    collect, operands = theirs.__globals__["collect"], _operands_of(theirs)
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


def _operands_of(theirs: Propagate) -> frozenset[str]:
    """The operands of a ``propagate`` that PyG rendered."""
    return frozenset(inspect.signature(theirs).parameters) - {"self", "edge_index", "size"}


def _arguments(kind: Any) -> Iterator[tuple[str, Any]]:
    """The arguments that PyG collects for the functions of a class, with their defaults."""
    layer = object.__new__(kind)  # for its methods alone
    for function, by_place in _FUNCTIONS:
        parameters = inspect.signature(getattr(layer, function)).parameters
        for parameter in list(parameters.values())[by_place:]:
            yield parameter.name, parameter.default


class ClassRecord:
    """Facts about a class of layers.

    Attributes:
        rule: The rule of its messages; None without one.
        block_reason: Why its layers cannot run their own messages; None if the class is not in the way.
        fuses: Whether the class has a fused path of PyG's own.
        plain: Whether its ``propagate`` is PyG's plain one, and not one that was rendered.
        names: The operands that ``propagate`` gets, but for ``size``; of a plain one those of the rule.
        own_message: Its own message and update, for layers that run these.
        explained: The same while an explainer is at work on a layer.
        selection: The layers that the patch takes, as it was when the class was looked at.
        serves_few: Whether few edges are served without a graph.
        steps: The functions that PyG calls on a small graph, and their arguments; None where PyG calls them.
        left: The log of a session in which PyG's code ran for a small graph of such a layer, and which says
            why; None without one.
    """

    __slots__ = (
        "_functions",
        "_get_attention",
        "_seen_softmax",
        "_softmax",
        "block_reason",
        "explained",
        "fuses",
        "left",
        "names",
        "own_message",
        "plain",
        "rule",
        "selection",
        "serves_few",
        "steps",
    )

    def __init__(self, kind: Any, theirs: Propagate) -> None:
        self._functions: Any = _functions(kind)
        self._get_attention = getattr(kind, "get_attention", None)
        self.selection = session.now.layers
        self.left: set[tuple[str, str]] | None = None
        self.fuses = kind.message_and_aggregate is not MessagePassing.message_and_aggregate
        self.plain = is_plain(theirs)
        operands, misfit = None if self.plain else _operands_of(theirs), rendering_reason(kind, theirs)
        self.rule: Rule | None = None
        with contextlib.suppress(Leave):
            rule = rule_of(kind)
            if misfit is None and (operands is None or operands == rule.operands.keys()):
                self.rule = rule
        # What the messages of attention call besides: another library may replace it.
        self._softmax = softmax_of(kind) if self.rule is not None and self.rule.attends else None
        # What is in its place, which is ours or the same: to see that again takes no call.
        self._seen_softmax: Any = ref(kind)  # which is no softmax
        if self._softmax is not None and is_own(self._softmax):
            self._seen_softmax = ref(kind.message.__globals__["softmax"])
        elif self._softmax is not None:
            self.rule = None
        self.serves_few = self.rule is not None and self.rule.few
        self.names: Set[Any] = (operands or frozenset()) if self.rule is None else self.rule.operands.keys()
        self.block_reason = block_class_reason(kind) or misfit
        self.steps: Steps | None = None
        if operands is not None and self.block_reason is None:
            self.steps = steps_of(kind, operands)
        self.own_message = OwnMessage(kind, self.names, self.plain)
        self.explained = ExplainedMessage(kind, self.names, self.plain)

    def holds(self, kind: Any) -> bool:
        """Return whether the functions of the class and the selection of the patch are those looked at."""
        return (
            self.selection is session.now.layers
            and self._functions == _functions(kind)
            and (
                self._softmax is None
                or kind.message.__globals__.get("softmax") is self._seen_softmax()
                or softmax_of(kind) is self._softmax
            )
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
        return (
            self.selection is session.now.layers
            and functions == _present(kind)
            and (
                self._softmax is None
                or kind.message.__globals__.get("softmax") is self._seen_softmax()
                or softmax_of(kind) is self._softmax
            )
        )


def softmax_of(kind: Any) -> Any:
    """The softmax that the module of a class's messages has: PyG's, where ours is in its place."""
    softmax = getattr(kind.message, "__globals__", {}).get("softmax")
    return replaced(softmax) or softmax


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

    def of_class(self, kind: type) -> ClassRecord:
        """The record of a class that has none in the dictionary, or one that is out of date."""
        record = self.others.get(kind)
        if record is not None and record.holds(kind):
            return record
        if replaced(vars(kind).get("propagate")) is self.theirs:
            record = self[kind] = ClassRecord(kind, self.theirs)
        else:
            record = self.others[kind] = _LooseRecord(kind, self.theirs)
        return record


def record_of(layer: Any) -> ClassRecord | None:
    """Return the record of a layer's class; None where its ``propagate`` is its own, or the patch is off."""
    kind = type(layer)
    records: Records | None = getattr(kind.propagate, "onehop_records", None)
    # A decoration of ours has its attributes, and another function behind it.
    if records is None or kind.propagate.__wrapped__ is not records.theirs:
        return None
    if not session.now.pyg or "propagate" in layer.__dict__:
        return None
    record = records.get(kind)
    return record if record is not None and record.holds(kind) else records.of_class(kind)


def with_own_forward(layer: Any, owner: Any, *functions: str, fuses: bool = False) -> ClassRecord:
    """The record of a layer whose whole ``forward``, with all that it calls, can be replaced.

    Args:
        layer: The layer, over edges that are a list.
        owner: The class of PyG whose ``forward`` is replaced.
        *functions: Names of functions that are called on the way and have to be the owner's.
        fuses: Whether the layer's switch ``fuse`` has to be on.

    Raises:
        Leave: The layer, the patch or the context is in the way.
    """
    kind, record = type(layer), record_of(layer)
    if record is None:
        raise Leave("its propagate is its own")
    leave_if(context_reason())
    check_layer(layer, fuses)
    need(not is_left_out(kind), LEFT_OUT)
    for name in functions:
        need(getattr(kind, name) is getattr(owner, name), f"its class overrides {name}")
    need(layer.flow == "source_to_target", "its messages flow from target to source")
    need(not (session.now.backend or session.now.machine), "its aggregations run elsewhere")
    return record
