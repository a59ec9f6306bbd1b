"""Pieces of Python from which a layer is put together."""

import re
import string
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Code:
    """A piece of a layer, by the place where it stands.

    In all of them ``$k`` is the number of the piece, by which its names differ from those of other pieces,
    and ``$name`` is the :attr:`value` of the entry that was chosen from the table of that name.

    Attributes:
        value: An expression.
        body: Statements of the message, which read and replace ``out``.
        top: Statements of the module, in front of the class.
        init: Statements at the end of ``__init__``.
        members: What stands in the class besides.
        change: Statements that change what the message reads; ``s.layer`` is the layer.
        few: Whether it is slow, and needs a graph of few edges.
    """

    value: str = ""
    body: str = ""
    top: str = ""
    init: str = ""
    members: str = ""
    change: str = ""
    few: bool = False

    def filled(self, words: Mapping[str, str]) -> "Code":
        """The same with ``$words`` replaced."""
        texts = {
            each.name: placed(getattr(self, each.name), words) for each in fields(self) if each.name != "few"
        }
        return Code(**texts, few=self.few)


Entry = Code | str
"""An entry of a table: a piece of code, or an expression alone."""
Table = Mapping[str, Entry]


def code_of(entry: Entry) -> Code:
    """The piece of code that an entry is."""
    return Code(value=entry) if isinstance(entry, str) else entry


@dataclass(frozen=True)
class Sort:
    """A sort of things that a message does: one entry of each table, in this order.

    Attributes:
        kind: The kind of fault that it looks for.
        tables: The tables, by the name under which later ones refer to the chosen expression.
        share: How often it is drawn, beside the others.
    """

    kind: str
    tables: Mapping[str, Table]
    share: float = 1.0

    def code(self, words: Iterable[str], number: int) -> Code:
        """The code of the entries of these names, as piece of this number."""
        chosen = [code_of(table[word]) for (_, table), word in zip(self.tables.items(), words, strict=True)]
        filled = {"k": str(number)}
        pieces = []
        for name, code in zip(self.tables, chosen, strict=True):
            pieces.append(code.filled(filled))
            filled[name] = pieces[-1].value
        return joined(pieces)


def joined(pieces: Iterable[Code]) -> Code:
    """One piece, in which these follow each other."""
    pieces = list(pieces)

    def together(name: str) -> str:
        return "\n".join(filter(None, (getattr(each, name) for each in pieces)))

    return Code(
        body=together("body"),
        top=together("top"),
        init=together("init"),
        members=together("members"),
        change=together("change"),
        few=any(each.few for each in pieces),
    )


def placed(template: str, words: Mapping[str, str]) -> str:
    """A template with its words replaced; what has several lines gets the indentation of its place."""
    lines = []
    for line in template.splitlines():
        alone = re.fullmatch(r"(\s+)\$(\w+)", line)
        if alone and alone[2] in words:
            lines.append(textwrap.indent(words[alone[2]], alone[1]))
        else:
            lines.append(string.Template(line).substitute(words))
    return "\n".join(lines)
