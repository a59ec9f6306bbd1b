"""Operators of pyg-lib that onehop registers with torch where pyg-lib is not installed."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch_geometric.typing

from onehop.integrations.rows import Function, count, counting

_LIBRARY = torch.library.Library("pyg", "FRAGMENT")


class StandsIn:
    """PyG's flag of pyg-lib where onehop's operators are there instead: it is true."""

    def __bool__(self) -> bool:
        return True


def has_pyg_lib() -> bool:
    """Return whether pyg-lib itself is installed."""
    return torch_geometric.typing.WITH_PYG_LIB is True


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of ``torch.ops.pyg``.

    Attributes:
        schema: Its schema, which is pyg-lib's.
        function: The function that runs.
        key: The dispatch key that runs it. "BackendSelect" is for operators whose arguments have tensors in
            dictionaries alone, where torch does not look for them; "CompositeImplicitAutograd" is for
            functions of operators that have gradients.
        fake: Returns a result of the same shape and dtype without data, for programs; None where torch finds
            it out, or where no program calls the operator.
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

    ``explain`` counts their calls as ``pyg.NAME``, and no calls of pyg-lib itself. torch cannot take back an
    operator, so they stay when the patch is removed.
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
    """The operator's function, whose calls are counted."""

    @functools.wraps(operator.function)
    def function(*args: object, **kwargs: object) -> object:
        if counting.live:
            count(f"pyg.{operator.name}", True)
        return operator.function(*args, **kwargs)

    return function
