"""Functions that serve operators of torch's."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

Body = Callable[..., Tensor | None]


class Served(NamedTuple):
    """A function that serves an operator.

    Attributes:
        body: Takes the arguments of the operator's CPU kernel. Returns None where that kernel has to run.
        name: The name by which its calls are counted.
    """

    body: Body
    name: str
