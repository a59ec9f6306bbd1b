"""The type of functions that run instead of torch's operators."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

Body = Callable[..., Tensor | None]


class Served(NamedTuple):
    """A function that runs instead of an operator's CPU kernel.

    Attributes:
        body: Takes the kernel's arguments. Returns None if the kernel has to run.
        name: The name under which its calls are counted.
    """

    body: Body
    name: str
