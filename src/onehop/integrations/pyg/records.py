"""Records of classes of layers, and who holds them."""

from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary, ref

from onehop.integrations import session
from onehop.integrations.pyg.classes import PLAIN_STEPS, STEPS, Propagate
from onehop.integrations.pyg.conditions import ClassRecord
from onehop.integrations.rows import replaced

_functions = attrgetter("message", *STEPS, *PLAIN_STEPS)


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
    return [*_functions(kind), *filter(None, [getattr(kind, "get_attention", None)])]


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
