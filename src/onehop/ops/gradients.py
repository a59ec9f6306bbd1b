"""The gradients of operators: as separate operators, and by a formula."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from torch import Tensor

from onehop.calls import accumulator
from onehop.ops.held_edges import with_edges
from onehop.ops.library import OPERATORS, C, Operator
from onehop.ops.recomputed import differentiated
from onehop.reference.independent import independent


class GradientOperator(Operator[C]):
    """An operator that computes the gradients of another operator.

    Its call begins with the operator's call, and ends with ``wanted``, a flag for each field of ``of``. For
    each field it returns a tensor of the operand's shape, or an empty tensor if the flag is False.

    Attributes:
        of: The named tuple of gradients.
        widens: Whether the gradients have the accumulator's dtype instead of the operands' dtype.
    """

    of: ClassVar[Any]
    widens: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.results = len(cls.of._fields)

    def fake(self, call: C) -> tuple[Tensor, ...]:
        """Return uninitialised results like the operands."""
        first = call[0][0]
        dtype = accumulator(first.dtype) if self.widens else None
        return tuple(
            first.new_empty(0, dtype=dtype) if like is None else like.new_empty(like.shape, dtype=dtype)
            for like in self._likes(call)
        )

    def padded(self, call: C, results: Any) -> Any:
        """Return the results, padded to the rows that the operands of edges have."""
        of_edges = OPERATORS[type(call[0])].edge_fields
        return tuple(
            gradient if like is None or name not in of_edges else with_edges(gradient, like.size(0))
            for name, like, gradient in zip(self.of._fields, self._likes(call), results, strict=True)
        )

    def _likes(self, call: C) -> list[Tensor | None]:
        """Return the operands, with None for those without a gradient."""
        needs: list[bool] = call.wanted  # type: ignore[attr-defined]
        return [
            getattr(call[0], name) if want else None
            for name, want in zip(self.of._fields, needs, strict=True)
        ]


def by_formula(
    formula: Callable[[C], Any],
    call: C,
    names: Sequence[str],
    grads: Sequence[Tensor | None],
    again: bool = True,
) -> dict[str, Tensor]:
    """Compute gradients of a call by a formula of differentiable functions.

    Second derivatives are rare, so most operators compute them by their reference, with a row for each edge.

    Args:
        formula: Returns the call's results, or the first ones.
        call: The call.
        names: The fields of the call to differentiate with respect to.
        grads: The gradient of each result of the formula, or None.
        again: Whether the gradients can be differentiated.

    Returns:
        The gradients by the names of the fields.
    """

    def whole(*operands: Tensor) -> Any:
        with independent():
            return formula(call._replace(**dict(zip(names, operands, strict=True))))  # type: ignore[attr-defined]

    operands = [getattr(call, name) for name in names]
    gradients = differentiated(whole, (True,) * len(names), operands, grads, again)
    return dict(zip(names, gradients, strict=True))
