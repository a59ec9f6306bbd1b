"""The record of a layer class: the rule of its messages, or why its layers run PyG's own code.

PyG has two kinds of ``propagate``. When the first layer of a class is made, PyG renders one for the arguments
of the class's functions: it reads their annotations and the source of the class, and stores the result by the
names of module and class. If that fails, PyG is silent, and layers run the plain
``MessagePassing.propagate``. It fails if annotations do not agree, or if the class has no source, because it
was made by ``exec`` or in ``python -c``.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Set
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv import message_passing

from onehop.integrations import session
from onehop.integrations.pyg.conditions import PLAIN_STEPS, STEPS, check_layer
from onehop.integrations.pyg.leave import Leave, leave_if, need
from onehop.integrations.pyg.rules import Rule, rules
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.integrations.pyg.rules.own_message import ExplainedMessage, OwnMessage
from onehop.integrations.pyg.small_graphs import Steps, steps_of
from onehop.integrations.rows import is_own, replaced
from onehop.ops.contexts import context_reason

Propagate = Callable[..., Any]

LEFT_OUT = "patch(only=...) leaves its class out"
_OTHER_ARGUMENTS = "PyG rendered the propagate that it runs for functions with other arguments"
# The functions whose arguments PyG collects, and how many other arguments come first.
_FUNCTIONS = (("message", 0), ("aggregate", 1), ("update", 1))
_SUMS = ("add", "sum")
_functions = attrgetter("message", *STEPS)
_all_functions = attrgetter("message", *STEPS, *PLAIN_STEPS)


# The class


def rule_of(kind: Any) -> Rule:
    """Return the rule of the messages of a class.

    Raises:
        Leave: The class has no rule.
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
    """Return why layers of a class cannot run their own messages; None if the class allows it."""
    if is_left_out(kind):
        return LEFT_OUT
    for name in (*STEPS, *PLAIN_STEPS):
        # The class's own update runs unchanged on the reduced messages; its own aggregate is traced with the
        # message.
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
    """Return whether ``patch(only=...)`` names neither the class nor one of its base classes."""
    layers = session.now.layers
    return layers is not None and layers.isdisjoint(base.__name__ for base in kind.__mro__)


def is_plain(theirs: Any) -> bool:
    """Return whether a ``propagate`` or ``edge_updater`` is PyG's plain function, and not wrapped."""
    return getattr(theirs, "__globals__", None) is vars(message_passing) and replaced(theirs) is None


def rendering_reason(kind: Any, theirs: Propagate) -> str | None:
    """Return why the ``propagate`` that a class runs does not fit the class; None if it fits.

    A ``propagate`` that was rendered for other functions passes the arguments and defaults of those
    functions. This happens because PyG renders once for all classes of the same name, and because a class
    that PyG cannot render runs its parent's ``propagate``.
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
    """Return the names of the operands of a ``propagate`` that PyG rendered."""
    return frozenset(inspect.signature(theirs).parameters) - {"self", "edge_index", "size"}


def _arguments(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yields the arguments that PyG collects for the functions of a class, with their defaults."""
    layer = object.__new__(kind)  # only its methods are used
    for function, by_place in _FUNCTIONS:
        parameters = inspect.signature(getattr(layer, function)).parameters
        for parameter in list(parameters.values())[by_place:]:
            yield parameter.name, parameter.default


class ClassRecord:
    """Facts about a class of layers.

    Attributes:
        rule: The rule of the class's messages; None without a rule.
        block_reason: Why layers of the class cannot run their own messages; None if the class allows it.
        fuses: Whether the class has a fused path in PyG.
        plain: Whether the class's ``propagate`` is PyG's plain function, and not a rendered one.
        names: The operands of ``propagate`` except ``size``; for a plain ``propagate``, the rule's operands.
        own_message: The class's own message and update, for layers that run them.
        explained: The class's own message and update while an explainer is running on a layer.
        selection: The layers that the patch selected when the record was made.
        serves_few: Whether onehop reduces few edges without a graph.
        weights: The operands that weight the sources' features; None if the class has another message.
        steps: The functions that PyG calls on a small graph, and their arguments; None if PyG has to call
            them.
        left: The log of the session in which PyG's code ran for a small graph of such a layer and the reason
            was logged; None without one.
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
        "weights",
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
        # Messages of attention also call a softmax, which another library may replace.
        self._softmax = softmax_of(kind) if self.rule is not None and self.rule.attends else None
        # The softmax that is in place now, ours or PyG's; comparing with it later takes no call.
        self._seen_softmax: Any = ref(kind)  # a placeholder that is not a softmax
        if self._softmax is not None and is_own(self._softmax):
            self._seen_softmax = ref(kind.message.__globals__["softmax"])
        elif self._softmax is not None:
            self.rule = None
        self.serves_few = self.rule is not None and self.rule.few
        self.weights: tuple[str, ...] | None = None
        if self.rule is not None and self.rule.few and not self.rule.attends:
            self.weights = tuple(name for name in self.rule.operands if name != self.rule.first)
        self.names: Set[Any] = (operands or frozenset()) if self.rule is None else self.rule.operands.keys()
        self.block_reason = block_class_reason(kind) or misfit
        self.steps: Steps | None = None
        if operands is not None and self.block_reason is None:
            self.steps = steps_of(kind, operands)
        self.own_message = OwnMessage(kind, self.names, self.plain)
        self.explained = ExplainedMessage(kind, self.names, self.plain)

    def leaves_fewest(self, layer: Any, operands: dict[str, Any]) -> bool:
        """Return whether torch's operators reduce the fewest edges as fast as one native call.

        They do if the layer's aggregator is not a plain reduction, and for sums without weights whose
        gradient is recorded: torch's two operators take less time than a backward pass in Python.

        Args:
            layer: The layer.
            operands: The keyword operands of ``propagate``.
        """
        if not self.serves_few or type(layer._modules.get("aggr_module")) not in REDUCTIONS:
            return True
        if self.weights is None or layer.aggr not in _SUMS or not torch.is_grad_enabled():
            return False
        for name in self.weights:
            if operands.get(name) is not None:
                return False
        rule: Any = self.rule
        x = operands.get(rule.first)
        x = x[0] if type(x) is tuple and x else x
        return isinstance(x, Tensor) and x.requires_grad

    def holds(self, kind: Any) -> bool:
        """Return whether the class's functions and the patch's selection are the same as in this record."""
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
    """A record without strong references to its class or to functions, which may refer to the class."""

    __slots__ = ("_references",)

    def __init__(self, kind: Any, theirs: Propagate) -> None:
        super().__init__(kind, theirs)
        self._references = [ref(function) for function in _present(kind)]
        self._functions = self._get_attention = None  # they may refer to the class

    def holds(self, kind: Any) -> bool:
        """Return whether the record is still valid, as in :class:`ClassRecord`."""
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
    """Return the softmax in the module of a class's messages; PyG's if onehop has replaced it."""
    softmax = getattr(kind.message, "__globals__", {}).get("softmax")
    return replaced(softmax) or softmax


def _present(kind: Any) -> list[Any]:
    """Return the functions of a class that its record depends on."""
    return [*_all_functions(kind), *filter(None, [getattr(kind, "get_attention", None)])]


class Records(dict[type, ClassRecord]):
    """The records of the classes whose layers run the same ``propagate`` of PyG.

    The dictionary has the record of the class for which the function was rendered; both are freed together.
    The records of classes that inherit the function are in ``others``, with weak references to the classes,
    because the plain function outlives them.

    Attributes:
        theirs: PyG's ``propagate``.
        others: The records of classes that inherit it.
    """

    def __init__(self, theirs: Propagate) -> None:
        super().__init__()
        self.theirs = theirs
        self.others: WeakKeyDictionary[type, ClassRecord] = WeakKeyDictionary()

    def of_class(self, kind: type) -> ClassRecord:
        """Return the record of a class that has no valid record in the dictionary; make it if necessary."""
        record = self.others.get(kind)
        if record is not None and record.holds(kind):
            return record
        if replaced(vars(kind).get("propagate")) is self.theirs:
            record = self[kind] = ClassRecord(kind, self.theirs)
        else:
            record = self.others[kind] = _LooseRecord(kind, self.theirs)
        return record


def record_of(layer: Any) -> ClassRecord | None:
    """Return the record of a layer's class; None if it has its own ``propagate``, or the patch is off."""
    kind = type(layer)
    records: Records | None = getattr(kind.propagate, "onehop_records", None)
    # A decorated wrapper of ours has the wrapper's attributes, but wraps another function.
    if records is None or kind.propagate.__wrapped__ is not records.theirs:
        return None
    if not session.now.pyg or "propagate" in layer.__dict__:
        return None
    record = records.get(kind)
    return record if record is not None and record.holds(kind) else records.of_class(kind)


def with_own_forward(layer: Any, owner: Any, *functions: str, fuses: bool = False) -> ClassRecord:
    """Return the record of a layer whose ``forward``, with all that it calls, can be replaced.

    Args:
        layer: The layer; its edges are a list.
        owner: The class of PyG whose ``forward`` is replaced.
        *functions: Names of functions that ``forward`` calls and that must be the owner's.
        fuses: Whether the layer's switch ``fuse`` has to be on.

    Raises:
        Leave: The layer, the patch or the context does not allow it.
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
