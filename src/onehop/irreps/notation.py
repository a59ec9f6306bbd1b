"""The notation of e3nn for features: "32x0e+16x1o" are 32 even scalars and 16 odd vectors."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from onehop.errors import ArgumentError

MOST_DEGREE = 4
"""The largest degree l that products support."""

_ITEM = re.compile(r"(?:(\d{1,9})x)?(\d{1,9})([eo])", re.ASCII)


class Irrep(NamedTuple):
    """Features of one irreducible representation.

    Attributes:
        multiplicity: How many there are: the channels.
        degree: l; each has 2l+1 components.
        parity: 1 if a reflection of all coordinates leaves them as they are ("e"), -1 if it changes their
            sign ("o").
    """

    multiplicity: int
    degree: int
    parity: int

    @property
    def components(self) -> int:
        """The components of a channel, 2l+1."""
        return 2 * self.degree + 1

    @property
    def dim(self) -> int:
        """The columns of all channels."""
        return self.multiplicity * self.components

    def __str__(self) -> str:
        """Return the notation, for example "32x1o"."""
        return f"{self.multiplicity}x{self.degree}{'e' if self.parity > 0 else 'o'}"


def parsed(name: str, irreps: object) -> tuple[Irrep, ...]:
    """Return the irreps that a text names; the text of e3nn's ``Irreps`` is one.

    Args:
        name: The argument's name, for errors.
        irreps: For example "32x0e+16x1o" or "0e + 1o", or an object whose text is that.

    Raises:
        ArgumentError: It is no such text, or a degree is larger than 4.
    """
    text = str(irreps).replace(" ", "")
    found = []
    for item in text.split("+") if text else ():
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ArgumentError(
                f'{name}: expected irreps such as "32x0e+16x1o", got {irreps!r}; {item!r} is none.'
            )
        multiplicity, degree, parity = match.groups(default="1")
        if int(degree) > MOST_DEGREE:
            raise ArgumentError(f"{name}: expected degrees l up to {MOST_DEGREE}, got {item!r}.")
        found.append(Irrep(int(multiplicity), int(degree), 1 if parity == "e" else -1))
    return tuple(found)


def written(irreps: Iterable[Irrep]) -> str:
    """Return the notation of some irreps."""
    return "+".join(map(str, irreps))


def dim_of(irreps: Iterable[Irrep]) -> int:
    """Return the columns of all irreps together."""
    return sum(irrep.dim for irrep in irreps)
