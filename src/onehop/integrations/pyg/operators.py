"""Operators of pyg-lib that onehop registers with torch if pyg-lib is not installed."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch_geometric.typing

from onehop.integrations.rows import Function, count, counting

_LIBRARY = torch.library.Library("pyg", "FRAGMENT")


class StandsIn:
    """The value of PyG's flags for pyg-lib if onehop's operators are registered instead; it is true."""

    def __bool__(self) -> bool:
        return True


def has_pyg_lib() -> bool:
    """Return whether pyg-lib itself is installed."""
    return torch_geometric.typing.WITH_PYG_LIB is True


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of ``torch.ops.pyg``.

    Attributes:
        schema: The operator's schema, the same as in pyg-lib.
        function: The function that runs.
        key: The dispatch key. "BackendSelect" is for operators whose arguments have tensors only in
            dictionaries, which torch does not search; "CompositeImplicitAutograd" is for functions made of
            operators that have gradients.
        fake: Returns a result of the same shape and dtype without data, for programs; None if torch can
            derive it, or if no program calls the operator.
    """

    schema: str
    function: Function
    key: str = "CPU"
    fake: Callable[..., object] | None = None

    @property
    def name(self) -> str:
        """The name after ``torch.ops.pyg``."""
        return self.schema.partition("(")[0]


def register(operators: Iterable[Operator]) -> None:
    """Registers operators, unless pyg-lib is installed or they are registered already.

    ``explain`` counts their calls as ``pyg.NAME``; calls of pyg-lib itself are not counted. torch cannot
    unregister operators, so they stay when the patch is removed.
    """
    if has_pyg_lib():
        return
    for operator in operators:
        if not hasattr(torch.ops.pyg, operator.name):
            _LIBRARY.define(operator.schema)
            _LIBRARY.impl(operator.name, _counting(operator), operator.key)
            if operator.fake is not None:
                torch.library.register_fake(f"pyg::{operator.name}", operator.fake, lib=_LIBRARY)


def _counting(operator: Operator) -> Function:
    """Return the operator's function, wrapped so that its calls are counted."""

    @functools.wraps(operator.function)
    def function(*args: object, **kwargs: object) -> object:
        if counting.live:
            count(f"pyg.{operator.name}", True)
        return operator.function(*args, **kwargs)

    return function
