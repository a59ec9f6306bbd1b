"""Classes of shapes: products of one class run in the same library."""

from typing import Any, NamedTuple

from onehop.errors import ArgumentError
from onehop.kernels.products import KINDS

# Multiplications of a product that is measured, and numbers in its operands and result: two or three
# milliseconds, and 32 MB. With more rows, a product of the same columns is the same work more often.
_MOST_WORK, _MOST_NUMBERS = 1 << 28, 1 << 23
_LEAST_ROWS = 64
_LARGEST = 1 << 40


class ShapeClass(NamedTuple):
    """Shapes of which one stands for all: the smallest one.

    Attributes:
        kind: The product, one of :data:`onehop.kernels.products.KINDS`.
        rows: Rows of x: a power of two. The class of the most rows has all that have more.
        inputs: Columns of x: three leading bits, and zeros.
        outputs: Rows of the weight, likewise.
        threads: Number of threads.
        dtype: Of all operands.
    """

    kind: str
    rows: int
    inputs: int
    outputs: int
    threads: int
    dtype: str = "float32"

    @classmethod
    def of(cls, kind: str, rows: int, inputs: int, outputs: int, threads: int) -> "ShapeClass":
        """The class of a product of x, [rows, inputs], and a weight, [outputs, inputs]."""
        inputs, outputs = _leading(inputs, 3), _leading(outputs, 3)
        most = min(_MOST_WORK // (inputs * outputs), _MOST_NUMBERS // (inputs + outputs))
        return cls(kind, _leading(min(rows, max(most, _LEAST_ROWS)), 1), inputs, outputs, threads)

    @classmethod
    def from_dict(cls, values: Any) -> "ShapeClass":
        """The class that ``_asdict()`` was called on.

        Raises:
            ArgumentError: A field is missing, unknown, of another type, or out of range.
        """
        try:
            made = cls(**values)
        except TypeError as error:
            raise ArgumentError(f"product: a field is missing or unknown ({error}).") from error
        numbers = (made.rows, made.inputs, made.outputs, made.threads)
        if made.kind not in KINDS or made.dtype != "float32":
            raise ArgumentError(f"product: {made.kind!r} of {made.dtype!r} is unknown.")
        if not all(type(number) is int and 0 < number < _LARGEST for number in numbers):
            raise ArgumentError(f"product: expected numbers from 1 on, got {numbers!r}.")
        return made

    def __str__(self) -> str:
        """The product and its sizes."""
        plural = "" if self.threads == 1 else "s"
        return (
            f"{self.kind}, {self.inputs} to {self.outputs} columns, from {self.rows} rows on, "
            f"{self.threads} thread{plural}"
        )


def _leading(number: int, bits: int) -> int:
    """The number with all but its leading bits set to zero."""
    shift = max(number.bit_length() - bits, 0)
    return number >> shift << shift
