"""Effects of a weight on its edge's message: the choices of ``aggregate(multiply=...)``."""

from torch import Tensor

from onehop.errors import ArgumentError

MULTIPLY = ("mul", "add", "sub", "copy", "sigmoid")


def check_multiply(multiply: str, weight: Tensor | None) -> None:
    """Raises unless ``multiply`` is known and has the weight that it needs."""
    if multiply not in MULTIPLY:
        raise ArgumentError(f"multiply: expected one of {', '.join(MULTIPLY)}, got {multiply!r}.")
    if weight is None and multiply not in ("mul", "copy"):
        raise ArgumentError(f"multiply: {multiply!r} needs a weight for every edge, and weight is None.")


def factor_or_term(multiply: str, weight: Tensor | None) -> tuple[Tensor | None, bool]:
    """The factor of each message, and whether it is added instead of multiplied."""
    if weight is None or multiply == "copy":
        return None, False
    if multiply == "sigmoid":
        return weight.sigmoid(), False
    return (-weight if multiply == "sub" else weight), multiply in ("add", "sub")
