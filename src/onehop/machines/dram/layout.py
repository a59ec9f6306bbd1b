"""Address layouts: how a burst's number maps to rank, bank group, bank, row and column."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError
from onehop.machines.dram.device import Organisation

# The command level stores one bit for each bank of a rank, and tables of this many ranks
# (csrc/machines/dram.hpp).
MOST_RANKS = 64
FIELDS = ("rank", "bank_group", "bank", "row", "column")

# Bits of an address, from low to high. A number says how many bits of the field come at this position; a
# field without a number takes all of its remaining bits. A "^" at the end means that the folded column is
# XORed onto the other fields.
_NAMED = {
    "row_first": "column, bank_group, bank, rank, row",
    "bg_first": "bank_group, column, bank, rank, row",
    "mop4": "column:2, rank, bank_group, bank, column, row ^",
}
NAMES = tuple(_NAMED)


@dataclass(frozen=True, slots=True)
class Slice:
    """A group of address bits that are bits of one field.

    field: Index of the field in :data:`FIELDS`.
        shift: Position of the lowest of these bits in the burst's number.
        bits: Number of bits.
        place: Position of the lowest of these bits in the field.
        place: Their place in the field.
    """

    field: int
    shift: int
    bits: int
    place: int


@dataclass(frozen=True, slots=True)
class Layout:
    """An address layout for one organisation and number of ranks.

    ``row_first`` fills a row of a bank before it moves on to the next bank group. ``bg_first`` puts
    consecutive bursts into different bank groups. ``mop4`` cuts rows into pieces of four bursts and XORs the
    column onto rank, bank group, bank and row, in this order, as Ramulator 2.1's MOP4CLXOR does. A custom
    layout is a list of fields from the lowest bits to the highest, for example ``"column:2, bank_group, bank,
    column, rank, row"``, with ``^`` at its end for the XOR.

    Attributes:
        text: The list of fields.
        slices: The same list as groups of bits.
        widths: Bits of each of :data:`FIELDS`.
        xor_column: Whether the column is XORed onto the other fields.
    """

    text: str
    slices: tuple[Slice, ...]
    widths: tuple[int, ...]
    xor_column: bool

    @property
    def bursts(self) -> int:
        """Number of bursts that the ranks hold."""
        return 1 << sum(self.widths)

    def map(self, bursts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map burst numbers to fields.

        Args:
            bursts: [N], burst numbers: byte addresses divided by the bytes of a burst.

        Returns:
            [5, N]: rank, bank group, bank, row and column of each burst.
        """
        out = np.zeros((len(FIELDS), *bursts.shape), dtype=np.int64)
        for entry in self.slices:
            out[entry.field] |= ((bursts >> entry.shift) & ((1 << entry.bits) - 1)) << entry.place
        self._xor(out)
        return out

    def unmap(self, fields: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map fields to burst numbers: the inverse of :meth:`map`.

        Args:
            fields: [5, N]: rank, bank group, bank, row and column of each burst.

        Returns:
            [N], burst numbers.

        Raises:
            ArgumentError: A field is out of range.
        """
        for name, width, values in zip(FIELDS, self.widths, fields, strict=True):
            if values.size and (int(values.min()) < 0 or int(values.max()) >> width):
                raise ArgumentError(
                    f"{name}: expected 0 to {(1 << width) - 1}, got {int(values.min())} to "
                    f"{int(values.max())}."
                )
        fields = fields.copy()
        self._xor(fields)
        out = np.zeros(fields.shape[1:], dtype=np.int64)
        for entry in self.slices:
            out |= ((fields[entry.field] >> entry.place) & ((1 << entry.bits) - 1)) << entry.shift
        return out

    def _xor(self, fields: NDArray[np.int64]) -> None:
        """XOR the column onto the other fields in place, if the layout says so; a second call undoes it."""
        if not self.xor_column:
            return
        used = 0
        for field, width in enumerate(self.widths[:-1]):
            fields[field] ^= (fields[-1] >> used) & ((1 << width) - 1)
            used += width


def layout_for(text: str, organisation: Organisation, ranks: int = 1) -> Layout:
    """Return the layout of this name, or of this list of fields.

    Args:
        text: ``row_first``, ``bg_first``, ``mop4``, or a list of fields as in :class:`Layout`.
        organisation: The ranks' organisation.
        ranks: Ranks behind the bus, a power of two.

    Raises:
        ArgumentError: The text is not a list of fields, omits bits or names too many bits; or ``ranks`` is
            not a power of two.
    """
    if type(ranks) is not int or not 1 <= ranks <= MOST_RANKS or ranks & (ranks - 1):
        raise ArgumentError(f"ranks: expected a power of two from 1 to {MOST_RANKS}, got {ranks!r}.")
    sizes = (
        ranks,
        organisation.bank_groups,
        organisation.banks_per_group,
        organisation.rows,
        organisation.row_bursts,
    )
    widths = tuple(size.bit_length() - 1 for size in sizes)
    if not isinstance(text, str):
        raise ArgumentError(f"layout: expected {', '.join(NAMES)} or a list of fields, got {text!r}.")
    listed = _NAMED.get(text, text).strip()
    xor_column = listed.endswith("^")
    entries = [_entry(piece, text) for piece in listed.removesuffix("^").split(",")]
    left = list(widths)
    for field, bits in entries:
        left[field] -= bits or 0
    slices, shift, placed = [], 0, [0] * len(FIELDS)
    for field, bits in entries:
        taken = max(left[field], 0) if bits is None else bits
        if bits is None:
            left[field] = 0
        slices.append(Slice(field, shift, taken, placed[field]))
        shift += taken
        placed[field] += taken
    for name, width, found in zip(FIELDS, widths, placed, strict=True):
        if found != width:
            raise ArgumentError(f"layout {text!r}: {name} has {width} bits here, the list names {found}.")
    return Layout(text, tuple(slices), widths, xor_column)


def _entry(piece: str, text: str) -> tuple[int, int | None]:
    """Return the field and the number of bits of one entry of a list."""
    name, colon, bits = piece.strip().partition(":")
    if name not in FIELDS or (colon and not bits.strip().isdecimal()):
        raise ArgumentError(
            f"layout {text!r}: expected {', '.join(NAMES)}, or fields with commas between them, each one of "
            f"{', '.join(FIELDS)} with or without a number of bits, as column:2; got {piece.strip()!r}."
        )
    return FIELDS.index(name), int(bits) if colon else None
